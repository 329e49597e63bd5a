package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// A flow is begun in vain if its opener's policy allows it and its receiver's does not. It is on record then, and says nothing
// about what the receiver sends with the same ends: nothing of it was let in, so nothing is an answer.

// TestAPodMaySendWhatTheOtherHasTriedInVain, also after the flow that came to nothing was revoked.
func TestAPodMaySendWhatTheOtherHasTriedInVain(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 123, 123).Bytes(), udp(f.b, f.a, 123, 123).Bytes()
		w.publish(t, w.b, word(slotDeny, 3), word(slotAllow, 4))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.publish(t, w.a, word(slotAllow, 5), word(slotDeny, 5))
		w.fromPod(t, w.podA, there).want(t, bpf.MargayDropReasonDROP_REVOKED)

		w.fromPod(t, w.podB, back).want(t, 0)
		w.toPod(t, w.podA, w.podB, back).want(t, 0)
		if fl := w.flow(t); fl.opener().Addr() != f.b {
			t.Errorf("flow %+v, want it opened by B", fl)
		}
		w.fromPod(t, w.podA, there).want(t, 0) // an answer
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
	})
}

// TestNothingAnswersAFlowInVain: policy that comes to allow A's flow allows no packet of B's own.
func TestNothingAnswersAFlowInVain(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 123, 123).Bytes(), udp(f.b, f.a, 123, 123).Bytes()
		w.publish(t, w.b, word(slotDeny, 3), word(slotDeny, 3))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.publish(t, w.b, word(slotAllow, 4), word(slotDeny, 4))
		w.fromPod(t, w.podB, back).want(t, bpf.MargayDropReasonDROP_POLICY)

		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.fromPod(t, w.podB, back).want(t, 0) // an answer now
		w.toPod(t, w.podA, w.podB, back).want(t, 0)
	})
}

// TestTheFlowOfWhatPassedIsNotTheOneInVain: B's attempt is on record when A's datagram passes, which opens a flow of A's. Policy
// that denies B's direction later does not concern it.
func TestTheFlowOfWhatPassedIsNotTheOneInVain(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 123, 123).Bytes(), udp(f.b, f.a, 123, 123).Bytes()
		w.publish(t, w.a, word(slotDeny, 2), word(slotAllow, 2))
		w.fromPod(t, w.podB, back).want(t, 0)
		w.toPod(t, w.podA, w.podB, back).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.publish(t, w.a, word(slotAllow, 3), word(slotAllow, 3))
		w.fromPod(t, w.podA, there).want(t, 0)
		w.toPod(t, w.podB, w.podA, there).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 4), word(slotAllow, 4))
		w.publish(t, w.b, word(slotAllow, 4), word(slotDeny, 4))
		w.fromPod(t, w.podB, back).want(t, 0)
		w.toPod(t, w.podA, w.podB, back).want(t, 0)
	})
}

// TestMidFlowOfAFlowInVain: what B sends in mid-flow is judged as B's own traffic (D-20), whatever A has tried.
func TestMidFlowOfAFlowInVain(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.b, word(slotDeny, 3), word(slotAllow, 4))
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, ack).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, tcp(f.b, f.a, 80, 1000, ack).Bytes()).want(t, 0)
		if fl := w.flow(t); fl.opener().Addr() != f.b {
			t.Errorf("flow %+v, want it opened by B", fl)
		}
	})
}
