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
			if out.want(t, none); beside && out.mark != markSeen|markJudge {
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

// TestAfterAnotherDataplaneOnlyFragmentsWithoutAFirstOnePass: the first one may have come before the program was attached. They are put off, so that a
// node whose kernel does not put them together drops them. What a policy denies is denied, and so are the fragments behind it.
func TestAfterAnotherDataplaneOnlyFragmentsWithoutAFirstOnePass(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.a.Flags |= bpf.EPBesideBefore
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, ack).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
		in, out := fragments(udp(f.out, f.a, 53, 1000), 1), fragments(udp(f.a, f.out, 1000, 53), 2)
		w.toPod(t, w.podA, outside, in[1]).want(t, bpf.MargayDropReasonDROP_FRAG_NO_FIRST)
		r := w.fromPod(t, w.podA, out[1])
		if r.want(t, 0); r.mark != markSeen|markJudge {
			t.Errorf("mark %#x", r.mark)
		}
		w.fromPod(t, w.podA, fragments(udp(f.b, f.out, 1000, 53), 3)[1]).want(t, bpf.MargayDropReasonDROP_SPOOFED)
		w.toPod(t, w.podA, outside, in[0]).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, outside, in[1]).want(t, bpf.MargayDropReasonDROP_FRAG_DENIED)
		w.fromPod(t, w.podA, out[0]).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podA, out[1]).want(t, bpf.MargayDropReasonDROP_FRAG_DENIED)
		w.noFlow(t)
	})
}

// TestFragmentsWithoutAFirstOneAreBounded: the kernel holds those that pass for want of a first one on record, in the memory of all pods.
func TestFragmentsWithoutAFirstOneAreBounded(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, flag := range []uint32{bpf.EPBeside, bpf.EPBesideBefore} {
			w.reset(t)
			w.a.Flags |= flag
			w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
			passed, refused := 0, 0
			for id := uint32(1); refused < 100; id++ {
				p := udp(f.a, f.out, 1000, 53)
				p.DstMAC, p.ID, p.Payload = w.hardwareAddr(t, w.podA), id, make([]byte, 60000)
				for _, frame := range p.Fragments(2048)[1:] {
					switch r := w.fromPod(t, w.podA, frame); r.reason() {
					case 0:
						passed++
					case bpf.MargayDropReasonDROP_FRAG_LIMIT:
						refused++
					default:
						t.Fatal(bpf.Label(r.reason()))
					}
				}
				if passed > int(bpf.FragCommonBytes/2048) {
					t.Fatalf("flags %#x: %d fragments have passed", flag, passed)
				}
			}
			own, common := w.charged(t, f == v6, 1)
			if own > bpf.FragOwnBytes || common > bpf.FragCommonBytes/2+4096 || int(own+common) < passed*2048 {
				t.Errorf("flags %#x: %d and %d bytes are charged for %d fragments", flag, own, common, passed)
			}
		}
	})
}

// TestDatagramsWhoseLastFragmentComesFirstAreCharged: the kernel may put that together with the first ones, and hold what comes then.
func TestDatagramsWhoseLastFragmentComesFirstAreCharged(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.a.Flags |= bpf.EPBesideBefore
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
		p := udp(f.a, f.out, 1000, 53)
		p.DstMAC, p.ID, p.Payload = w.hardwareAddr(t, w.podA), 1, make([]byte, 20000)
		frames := p.Fragments(1024)
		for _, frame := range append(frames[len(frames)-1:], frames...) {
			w.fromPod(t, w.podA, frame).want(t, 0)
		}
		if own, common := w.charged(t, f == v6, 1); int(own+common) < len(p.Payload) {
			t.Errorf("%d and %d bytes are charged", own, common)
		}
	})
}

// TestDatagramsWhoseFirstFragmentIsOldAreCharged: the kernel has given that one up, and holds what comes then.
func TestDatagramsWhoseFirstFragmentIsOldAreCharged(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.a.Flags |= bpf.EPBesideBefore
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
		frames := w.datagram(t, f.a, f.out, w.podA, 1)
		w.fromPod(t, w.podA, frames[0]).want(t, 0)
		w.ageDatagram(t, 31)
		for _, frame := range frames[1:] {
			w.fromPod(t, w.podA, frame).want(t, 0)
		}
		if own, common := w.charged(t, f == v6, 1); own+common == 0 {
			t.Error("nothing is charged")
		}
	})
}
