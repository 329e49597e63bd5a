package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// TestFirstFragmentsOfOthersPushOutNothing: a pod, and a host outside, send first fragments without end. What another pod
// has under way, from it and to it, arrives; so does the flooding pod's own last datagram.
func TestFirstFragmentsOfOthersPushOutNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const under, flood = 128, 20000
	w.eachFamily(t, "", func(t *testing.T, f family) {
		out := func(i int) [][]byte { return fragments(udp(f.a, f.out, 1000, 53), uint32(i)) }
		in := func(i int) [][]byte { return fragments(udp(f.out, f.a, 53, 1000), uint32(i)) }
		for i := range under {
			w.fromPod(t, w.podA, out(i)[0]).want(t, 0)
			w.toPod(t, w.podA, outside, in(i)[0]).want(t, 0)
		}
		send := func(program string, at skb, frame []byte) {
			if ret, err := w.Programs[program].Run(&ebpf.RunOptions{Data: frame, Context: at}); err != nil || int32(ret) != next {
				t.Fatalf("%s: %d, %v", program, int32(ret), err)
			}
		}
		w.ns.Do(t, func() {
			for i := range uint32(flood) {
				frame := fragments(udp(f.b, f.a, 1000, 53), i)[0]
				send(bpf.MargayProgFromPod, skb{Ifindex: w.podB}, frame)
				send(bpf.MargayProgToPod, skb{Ifindex: w.podA, IngressIfindex: w.podB}, frame)
				send(bpf.MargayProgToPod, skb{Ifindex: w.podB, IngressIfindex: outside}, fragments(udp(f.other, f.b, 1000, 53), i)[0])
				if f == v6 { // cut by the node, it has come by no interface
					send(bpf.MargayProgToPod, skb{Ifindex: w.podA}, fragments(udp(f.b, f.a, 1000, 53), flood+i)[0])
				}
			}
		})
		for i := range under {
			for _, later := range []int{1, 2} {
				w.fromPod(t, w.podA, out(i)[later]).want(t, 0)
				w.toPod(t, w.podA, outside, in(i)[later]).want(t, 0)
			}
		}
		last := fragments(udp(f.b, f.a, 1000, 53), flood-1)
		w.fromPod(t, w.podB, last[1]).want(t, 0)
		w.toPod(t, w.podA, w.podB, last[1]).want(t, 0)
	})
}

// TestAShareHasTheLatestFirstFragments, as many as there is room for, whatever their numbers begin with.
func TestAShareHasTheLatestFirstFragments(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const room = bpf.FragSets * bpf.FragWays
	w.eachFamily(t, "", func(t *testing.T, f family) {
		datagram := func(i int) [][]byte { return fragments(udp(f.a, f.out, 1000, 53), uint32(65000+i)&0xffff) }
		for i := range 3 * room {
			w.fromPod(t, w.podA, datagram(i)[0]).want(t, 0)
		}
		for i := range 3 * room {
			want := bpf.DropReason(0)
			if i < 2*room {
				want = bpf.MargayDropReasonDROP_FRAG_NO_FIRST
			}
			w.fromPod(t, w.podA, datagram(i)[1]).want(t, want)
		}
	})
}
