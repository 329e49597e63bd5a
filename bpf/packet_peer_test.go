package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// TestAShortcutFlowTakesTheStackWhileThePodsSideIsUnknown: the agent takes the peer's ifindex away before it changes
// what else is known of the pod's side, and gives it back last.
func TestAShortcutFlowTakesTheStackWhileThePodsSideIsUnknown(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "udp", func(t *testing.T, f family) {
		frame := udp(f.a, f.b, 1000, 53).Bytes()
		w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
		known := *w.b
		w.b.PeerIfindex, w.b.Mac = 0, [6]byte{}
		w.publish(t, w.b, w.b.Ingress, w.b.Egress)
		w.fromPod(t, w.podA, frame).want(t, 0)
		w.toPod(t, w.podB, w.podA, frame).want(t, 0)
		*w.b = known
		w.publish(t, w.b, w.b.Ingress, w.b.Egress)
		w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
	})
}
