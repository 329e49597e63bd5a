package bpf_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

// counted is what the programs say of an interface's open flows.
func (w *world) counted(t *testing.T, ifindex uint32) bpf.OpenCount {
	t.Helper()
	var c bpf.OpenCount
	if err := w.Maps[bpf.MargayMapOpenFlows].Lookup(ifindex, &c); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	return c
}

func (w *world) wantCounts(t *testing.T, what string, a, b bpf.OpenCount) {
	t.Helper()
	if diff := cmp.Diff([]bpf.OpenCount{a, b}, []bpf.OpenCount{w.counted(t, w.podA), w.counted(t, w.podB)}); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
	inOpen := uint32(0)
	for _, f := range w.flows(t) {
		if f.open {
			inOpen++
		}
	}
	if inOpen != a.Open+b.Open {
		t.Errorf("%s: %d flows in the open maps, %d counted", what, inOpen, a.Open+b.Open)
	}
}

// TestAnEndpointHasNoMoreOpenFlowsThanItsShare: what is beyond it is tracked all the same, and counted; every open flow
// is counted once, and out once, however it ends.
func TestAnEndpointHasNoMoreOpenFlowsThanItsShare(t *testing.T) {
	w := newWorld(t, bpf.Config{OpenQuota: 2})
	w.eachFamily(t, "quota", func(t *testing.T, f family) {
		w.empty(t, bpf.MargayMapOpenFlows)
		asked := func(port uint16) {
			t.Helper()
			w.fromPod(t, w.podA, udp(f.a, f.out, port, 53).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, port).Bytes()).want(t, 0)
		}
		for port := range uint16(4) {
			asked(1000 + port)
			asked(1000 + port)
		}
		w.wantCounts(t, "four flows", bpf.OpenCount{Open: 2, Refused: 2}, bpf.OpenCount{})

		// Another endpoint's share is its own; it is charged with what is opened from elsewhere.
		w.toPod(t, w.podB, outside, udp(f.out, f.b, 1000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podB, udp(f.b, f.out, 53, 1000).Bytes()).want(t, 0)
		w.wantCounts(t, "another endpoint", bpf.OpenCount{Open: 2, Refused: 2}, bpf.OpenCount{Open: 1})

		// Between two pods of the node, the opener's.
		w.fromPod(t, w.podB, udp(f.b, f.a, 2000, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, udp(f.b, f.a, 2000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, udp(f.a, f.b, 53, 2000).Bytes()).want(t, 0)
		w.wantCounts(t, "pod to pod", bpf.OpenCount{Open: 2, Refused: 2}, bpf.OpenCount{Open: 2})

		// One is revoked: it has its place until it expires.
		w.publish(t, w.a, word(slotAllow, 1), word(slotDeny, 2))
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_REVOKED)
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 3))
		w.wantCounts(t, "one revoked", bpf.OpenCount{Open: 2, Refused: 2}, bpf.OpenCount{Open: 2})
		asked(1010)
		w.wantCounts(t, "another beside it", bpf.OpenCount{Open: 2, Refused: 3}, bpf.OpenCount{Open: 2})

		w.age(t)
		w.sweepAll(t)
		w.noFlow(t)
		w.wantCounts(t, "swept", bpf.OpenCount{Refused: 3}, bpf.OpenCount{})
	})
}

// age makes all flows older than any timeout.
func (w *world) age(t *testing.T) {
	t.Helper()
	for _, name := range []string{bpf.MargayMapCt4Open, bpf.MargayMapCt4Half} {
		ageAll[bpf.Ct4Key](t, w.Maps[name])
	}
	for _, name := range []string{bpf.MargayMapCt6Open, bpf.MargayMapCt6Half} {
		ageAll[bpf.Ct6Key](t, w.Maps[name])
	}
}

func ageAll[K any](t *testing.T, m *ebpf.Map) {
	t.Helper()
	old := map[any]bpf.CtEntry{}
	var key K
	var entry bpf.CtEntry
	it := m.Iterate()
	for it.Next(&key, &entry) {
		entry.Seen -= 1 << 20
		old[key] = entry
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	for key, entry := range old {
		k := key.(K)
		if err := m.Update(&k, &entry, ebpf.UpdateExist); err != nil {
			t.Fatal(err)
		}
	}
}

// A connection that is opened again in its old entry stays where it is, and stays counted once.
func TestAReopenedFlowIsCountedOnce(t *testing.T) {
	w := newWorld(t, bpf.Config{OpenQuota: 1})
	w.eachFamily(t, "reopened", func(t *testing.T, f family) {
		w.empty(t, bpf.MargayMapOpenFlows)
		for range 3 {
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn|ack).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes()).want(t, 0)
			if fl := w.flow(t); !fl.open || !fl.has(open) || fl.entry.Charged != w.podA {
				t.Errorf("flow %+v, want an open one", fl)
			}
			w.wantCounts(t, "opened", bpf.OpenCount{Open: 1}, bpf.OpenCount{})
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, fin|ack).Bytes()).want(t, 0)
		}
	})
}

func TestWithoutAQuotaNothingIsCounted(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.fromPod(t, w.podA, udp(v4.a, v4.out, 1000, 53).Bytes()).want(t, 0)
	w.toPod(t, w.podA, outside, udp(v4.out, v4.a, 53, 1000).Bytes()).want(t, 0)
	if fl := w.flow(t); !fl.open || fl.entry.Charged != 0 {
		t.Errorf("flow %+v, want an open one that is nobody's", fl)
	}
	if c := w.counted(t, w.podA); c != (bpf.OpenCount{}) {
		t.Errorf("counted %+v", c)
	}
}
