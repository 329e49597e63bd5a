package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// TestFirstFragmentsOfOthersPushOutNothing: a pod, and a host outside, send first fragments without end. What another pod
// has under way, from it and to it, arrives; so does the last datagram to the flooding pod.
func TestFirstFragmentsOfOthersPushOutNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const under, flood = 128, 5000 // under emulation more takes longer than the kernel keeps fragments
	w.eachFamily(t, "", func(t *testing.T, f family) {
		out := func(i int) [][]byte { return fragments(udp(f.a, f.out, 1000, 53), uint32(i)) }
		in := func(i int) [][]byte { return fragments(udp(f.out, f.a, 53, 1000), uint32(i)) }
		for i := range under {
			w.fromPod(t, w.podA, out(i)[0]).want(t, 0)
			w.toPod(t, w.podA, outside, in(i)[0]).want(t, 0)
		}
		run := func(program string, at skb, frame []byte) int32 {
			ret, err := w.Programs[program].Run(&ebpf.RunOptions{Data: frame, Context: at})
			if err != nil {
				t.Fatalf("%s: %v", program, err)
			}
			return int32(ret)
		}
		send := func(program string, at skb, frame []byte) {
			if ret := run(program, at, frame); ret != next {
				t.Fatalf("%s: %d", program, ret)
			}
		}
		w.ns.Do(t, func() {
			for i := range uint32(flood) {
				frame := fragments(udp(f.b, f.a, 1000, 53), i)[0]
				run(bpf.MargayProgFromPod, skb{Ifindex: w.podB}, frame) // after the first ones they are refused
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
		w.fromPod(t, w.podB, fragments(udp(f.b, f.a, 1000, 53), 0)[1]).want(t, 0)
		w.toPod(t, w.podA, w.podB, fragments(udp(f.b, f.a, 1000, 53), flood-1)[1]).want(t, 0)
	})
}

// TestAShareHasTheLatestFirstFragments to its pods, as many as there is room for, whatever their numbers begin with. From
// a pod it has the earliest ones that are not complete.
func TestAShareHasTheLatestFirstFragments(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const room = bpf.FragSets * bpf.FragWays
	w.eachFamily(t, "", func(t *testing.T, f family) {
		to := func(i int) [][]byte { return fragments(udp(f.out, f.a, 1000, 53), uint32(65000+i)&0xffff) }
		from := func(i int) [][]byte { return fragments(udp(f.a, f.out, 1000, 53), uint32(65000+i)&0xffff) }
		limit, none := bpf.MargayDropReasonDROP_FRAG_LIMIT, bpf.MargayDropReasonDROP_FRAG_NO_FIRST
		for i := range 3 * room {
			w.toPod(t, w.podA, outside, to(i)[0]).want(t, 0)
			want := limit
			if i < room {
				want = 0
			}
			w.fromPod(t, w.podA, from(i)[0]).want(t, want)
		}
		for i := range 3 * room {
			latest, earliest := none, none
			if i >= 2*room {
				latest = 0
			}
			if i < room {
				earliest = 0
			}
			w.toPod(t, w.podA, outside, to(i)[1]).want(t, latest)
			w.fromPod(t, w.podA, from(i)[1]).want(t, earliest)
		}
	})
}
