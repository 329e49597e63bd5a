package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestEventsNobodyReadsAreCounted: once the ring is full, verdicts are told of by number, in the next event there is a
// place for.
func TestEventsNobodyReadsAreCounted(t *testing.T) {
	w := newWorld(t, bpf.Config{EventRate: 1 << 30})
	w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
	w.events(t)
	frame := udp(v4.a, v4.out, 1000, 53).Bytes()
	const packets = 20000 // the ring has room for half of them
	for range packets {
		w.fromPod(t, w.podA, frame)
	}
	told := len(w.events(t))
	if told == 0 || told >= packets {
		t.Fatalf("%d events of %d verdicts, more than there is room for", told, packets)
	}
	// The count is kept by CPU, so a packet on another one does not tell it.
	counted := 0
	for i := 0; i < packets && counted == 0; i++ {
		w.fromPod(t, w.podA, frame)
		for _, e := range w.events(t) {
			counted += int(e.Suppressed)
		}
	}
	if counted == 0 || counted > packets-told {
		t.Errorf("%d verdicts were not told of, %d counted", packets-told, counted)
	}
}
