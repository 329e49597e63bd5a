package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// sctp is a packet with one chunk.
func sctp(src, dst netip.Addr, sport, dport uint16, chunk uint8) testutil.Packet {
	return testutil.Packet{
		Src: src, Dst: dst, L4: testutil.SCTP{SrcPort: sport, DstPort: dport, Tag: 7}, Payload: []byte{chunk, 0, 0, 4},
	}
}

// An association that has ended is known as such, so that it does not stay as long as one that lives, until the next one
// between the same ends begins.
func TestSCTPAssociationsBeginAndEnd(t *testing.T) {
	const data, initiation, initAck, abort, cookieEcho, complete = 0, 1, 2, 6, 10, 14
	steps := []struct {
		name  string
		out   bool
		chunk uint8
		ended bool
	}{
		{"INIT", true, initiation, false},
		{"INIT ACK", false, initAck, false},
		{"COOKIE ECHO", true, cookieEcho, false},
		{"data", false, data, false},
		{"ABORT", false, abort, true},
		{"data under way", true, data, true},
		{"INIT of the next", true, initiation, false},
		{"SHUTDOWN COMPLETE", true, complete, true},
	}
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "association", func(t *testing.T, f family) {
		for _, s := range steps {
			if s.out {
				w.fromPod(t, w.podA, sctp(f.a, f.out, 1000, 80, s.chunk).Bytes()).want(t, 0)
			} else {
				w.toPod(t, w.podA, outside, sctp(f.out, f.a, 80, 1000, s.chunk).Bytes()).want(t, 0)
			}
			if got := w.flow(t); got.has(reset) != s.ended {
				t.Errorf("after %s: state %d, want it ended: %v", s.name, got.entry.State, s.ended)
			}
		}
	})
}
