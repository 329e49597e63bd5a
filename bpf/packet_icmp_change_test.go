package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestICMPErrorsAfterAChange: one about a flow that policy still allows passes, as the flow's next packet would. One about a
// flow that policy denies now revokes nothing, and is judged as the message that it is.
func TestICMPErrorsAfterAChange(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.out, 1000, 53), udp(f.out, f.a, 53, 1000)
		in, out := unreachable(f.out, f.a, testutil.Quoting(there)), unreachable(f.a, f.out, testutil.Quoting(back))
		w.fromPod(t, w.podA, there.Bytes()).want(t, 0)
		generation := uint32(1)
		for _, step := range []struct {
			ingress, egress uint32
			in, out         bpf.DropReason
			events          int
		}{
			{slotNoICMP, slotNoICMP, 0, 0, 1}, // by the flow, which is judged once
			{slotDeny, slotDeny, bpf.MargayDropReasonDROP_POLICY, bpf.MargayDropReasonDROP_POLICY, 2},
			{slotAllow, slotDeny, 0, bpf.MargayDropReasonDROP_POLICY, 2}, // by the error itself
			{slotDeny, slotNoICMP, 0, 0, 1},
		} {
			generation++
			w.publish(t, w.a, word(step.ingress, generation), word(step.egress, generation))
			w.events(t)
			w.toPod(t, w.podA, outside, in.Bytes()).want(t, step.in)
			w.fromPod(t, w.podA, out.Bytes()).want(t, step.out)
			if got := w.events(t); len(got) != step.events {
				t.Errorf("generation %d: events %+v, want %d", generation, got, step.events)
			}
		}
		w.fromPod(t, w.podA, there.Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, back.Bytes()).want(t, 0)
	})
}

// TestKeptFlowsKeepTheirErrors, where policy that denies live flows leaves them alone.
func TestKeptFlowsKeepTheirErrors(t *testing.T) {
	w := newWorld(t, bpf.Config{KeepExisting: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podA, outside, unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1000, 53))).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1001, 53))).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestICMPErrorsToAServiceAreJudgedAfterTranslation, if they are about no flow that policy allows.
func TestICMPErrorsToAServiceAreJudgedAfterTranslation(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, to := range []netip.Addr{f.service, f.node} {
			p := unreachable(f.a, to, testutil.Quoting(udp(to, f.a, 53, 1000)))
			r := w.fromPod(t, w.podA, p.Bytes())
			if r.want(t, 0); r.mark != markSeen|markJudge {
				t.Errorf("to %s: mark %#x, want it judged after translation", to, r.mark)
			}
		}
		w.noFlow(t)
	})
}

// TestICMPErrorsAboutAFlowToAServiceMayBeForSomebodyElse: kube-proxy translates an error only if the kernel's conntrack finds it to be
// about the flow. One that it does not know goes to the Service's address itself, so it is judged there.
func TestICMPErrorsAboutAFlowToAServiceMayBeForSomebodyElse(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		in := unreachable(f.service, f.a, testutil.Quoting(udp(f.a, f.service, 1000, 53)))
		out := unreachable(f.a, f.service, testutil.Quoting(udp(f.service, f.a, 53, 1000)))
		for _, kind := range []uint8{uint8(bpf.MargayCtFlagsCT_SELF), uint8(bpf.MargayCtFlagsCT_TRANSLATED)} {
			w.putServiceFlow(t, f, bpf.CtEntry{Flags: kind, Egress: 1})
			r := w.fromPod(t, w.podA, out.Bytes())
			if r.want(t, 0); r.mark != markSeen|markJudge {
				t.Errorf("flow of kind %d, not confirmed: mark %#x of an error to the Service, want its backend compared", kind, r.mark)
			}
			w.toPod(t, w.podA, outside, in.Bytes()).want(t, 0)
			w.putServiceFlow(t, f, bpf.CtEntry{Flags: kind | uint8(bpf.MargayCtFlagsCT_CONFIRMED), Egress: 1})
			r = w.fromPod(t, w.podA, out.Bytes())
			if r.want(t, 0); r.mark != markJudge {
				t.Errorf("flow of kind %d: mark %#x of an error to the Service, want it judged unless conntrack knows it", kind, r.mark)
			}
			w.toPod(t, w.podA, outside, in.Bytes()).want(t, 0)
		}
	})
}
