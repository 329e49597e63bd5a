package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestAbsurdTCPFlagsAreDropped: flags that no state of TCP sends, both ways, whatever policy says; all others are
// judged.
func TestAbsurdTCPFlagsAreDropped(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const psh, urg = 8, 32
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, flags := range []uint8{0, psh | urg, syn | fin, syn | rst, syn | fin | ack, syn | fin | rst | psh | ack | urg} {
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_CT_INVALID)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_CT_INVALID)
		}
		w.noFlow(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
	})
}

// TestFINsThatSegmentsLoseDoNotCount: of a packet that is still to be segmented the last segment alone keeps the FIN, and the others
// would have no flag.
func TestFINsThatSegmentsLoseDoNotCount(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const alone, psh = 1, 8
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, c := range []struct {
			flags  uint8
			size   uint32
			absurd bool
		}{{alone, 8, true}, {alone | psh, 8, true}, {alone, 0, false}, {alone | ack, 8, false}, {rst, 8, false}} {
			p := tcp(f.a, f.out, 1000, 80, c.flags)
			p.Payload = make([]byte, 32)
			r := w.run(t, bpf.MargayProgFromPod, skb{Ifindex: w.podA, GsoSize: c.size}, p.Bytes())
			if got := r.reason() == bpf.MargayDropReasonDROP_CT_INVALID; got != c.absurd {
				t.Errorf("flags %#x in segments of %d bytes: dropped as absurd: %v, want %v", c.flags, c.size, got, c.absurd)
			}
		}
	})
}
