package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// What a pod sends to itself by a NodePort comes back from the node's address, as what others send there does. The node may
// give two of them the same port, one after the other.

func TestAPodReachesItselfWithThePortOfAnother(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, frame := range [][]byte{udp(f.node, f.a, 5000, 53).Bytes(), tcp(f.node, f.a, 5000, 80, syn).Bytes()} {
			w.toPod(t, w.podA, outside, frame).want(t, 0)
			w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
			w.toPod(t, w.podA, w.podA, frame).want(t, 0)
			w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
		}
	})
}

func TestOthersDoNotPassForThePodItself(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		for _, frame := range [][]byte{udp(f.node, f.a, 5000, 53).Bytes(), tcp(f.node, f.a, 5000, 80, syn).Bytes()} {
			w.toPod(t, w.podA, w.podA, frame).want(t, 0)
			w.toPod(t, w.podA, outside, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.toPod(t, w.podA, w.podB, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
	})
}

func TestOthersDoNotPassForTheNode(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		frame := udp(f.node, f.a, 5000, 53).Bytes()
		w.toPod(t, w.podA, 0, frame).want(t, 0)
		w.toPod(t, w.podA, outside, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, w.podB, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, 0, frame).want(t, 0)
		w.fromPod(t, w.podA, udp(f.a, f.node, 53, 5000).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}
