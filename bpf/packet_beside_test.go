package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestBesideAnotherDataplaneOnlyWhatNoPolicyDecidesIsDropped: what policy seems to deny passes, and is no flow; what it allows is
// one. Without the flag the same packets are dropped.
func TestBesideAnotherDataplaneOnlyWhatNoPolicyDecidesIsDropped(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, beside := range []bool{true, false} {
			w.reset(t)
			denied := func(reason bpf.DropReason) bpf.DropReason {
				if beside {
					return 0
				}
				return reason
			}
			if beside {
				w.a.Flags |= bpf.EPBeside
			}
			w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000).Bytes()).want(t, denied(bpf.MargayDropReasonDROP_POLICY))
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, ack).Bytes()).want(t, denied(bpf.MargayDropReasonDROP_MIDFLOW))
			w.noFlow(t)
			// The first fragment may have passed before this program was attached.
			none := denied(bpf.MargayDropReasonDROP_FRAG_NO_FIRST)
			w.toPod(t, w.podA, outside, fragments(udp(f.out, f.a, 53, 1000), 1)[1]).want(t, none)
			out := w.fromPod(t, w.podA, fragments(udp(f.a, f.out, 1000, 53), 1)[1])
			if out.want(t, none); beside && out.mark != markSeen {
				t.Errorf("mark %#x of a later fragment", out.mark)
			}
			w.fromPod(t, w.podA, udp(f.b, f.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_SPOOFED)
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 4789).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, 0).Bytes()).want(t, bpf.MargayDropReasonDROP_CT_INVALID)
			w.forget(t)
			out = w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes())
			if out.want(t, 0); out.mark != markSeen {
				t.Errorf("mark %#x", out.mark)
			}
			w.flow(t)
			w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
			out = w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes())
			if out.want(t, denied(bpf.MargayDropReasonDROP_REVOKED)); beside && out.mark != markSeen {
				t.Errorf("mark %#x of one that policy denies", out.mark)
			}
		}
	})
}
