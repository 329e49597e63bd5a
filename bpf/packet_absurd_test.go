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
