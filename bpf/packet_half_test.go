package bpf_test

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// flood sends a packet of each of n flows from the pod, or to it. Nothing is checked but that they pass.
func (w *world) flood(t *testing.T, fromPod bool, veth uint32, n int, frame func(i int) testutil.Packet) {
	t.Helper()
	program, at := w.Programs[bpf.MargayProgToPod], skb{Ifindex: veth, IngressIfindex: outside}
	if fromPod {
		program, at = w.Programs[bpf.MargayProgFromPod], skb{Ifindex: veth}
	}
	w.ns.Do(t, func() {
		for i := range n {
			ret, err := program.Run(&ebpf.RunOptions{Data: frame(i).Bytes(), Context: at})
			if err != nil || int32(ret) != next {
				t.Fatalf("flow %d: %d, %v", i, int32(ret), err)
			}
		}
	})
}

// TestAFloodEvictsOnlyItsOwnHalfOpenFlows: between a pod's query and its answer come more new flows of another pod, or
// forged ones to another pod, than there is room for in all.
func TestAFloodEvictsOnlyItsOwnHalfOpenFlows(t *testing.T) {
	w := newWorld(t, bpf.Config{HalfShare: 16, HalfCommon: 64})
	w.eachFamily(t, "flood", func(t *testing.T, f family) {
		for name, flood := range map[string]func(){
			"from a pod": func() {
				w.flood(t, true, w.podB, 5000, func(i int) testutil.Packet { return udp(f.b, f.out, uint16(1000+i), 53) })
			},
			"to a pod": func() {
				w.flood(t, false, w.podB, 5000, func(i int) testutil.Packet { return tcp(f.other, f.b, uint16(1000+i), 80, syn) })
			},
		} {
			w.forget(t)
			w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
			for port := range uint16(16) {
				w.fromPod(t, w.podA, udp(f.a, f.out, 1000+port, 53).Bytes()).want(t, 0)
			}
			flood()
			for port := range uint16(16) {
				w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000+port).Bytes()).want(t, 0)
			}
			if n := len(w.flows(t)); n != 16+16+64 {
				t.Errorf("%s: %d flows are known; want 16 of the pod, and of the other its share of 16 and 64 more", name, n)
			}
			if n := w.share(t, bpf.Shares).Evicted; n != 5000-16-64 {
				t.Errorf("%s: %d were evicted", name, n)
			}
		}
	})
}

// Beyond its share a pod has what nobody else uses.
func TestHalfOpenFlowsBeyondTheShareGoOnInCommon(t *testing.T) {
	w := newWorld(t, bpf.Config{HalfShare: 16, HalfCommon: 64})
	w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
	w.flood(t, true, w.podA, 100, func(i int) testutil.Packet { return udp(v4.a, v4.out, uint16(1000+i), 53) })
	for i := range uint16(100) {
		want := bpf.DropReason(0)
		if i < 100-80 {
			want = bpf.MargayDropReasonDROP_POLICY
		}
		w.toPod(t, w.podA, outside, udp(v4.out, v4.a, 53, 1000+i).Bytes()).want(t, want)
	}
}

// What has ended or is open by now is in the way of nothing, and its key, if it is used anew, is not taken for the older
// flow's.
func TestAnOpenFlowOutlivesItsPlaceAmongHalfOpenOnes(t *testing.T) {
	w := newWorld(t, bpf.Config{HalfShare: 16, HalfCommon: 64})
	established := func() {
		w.fromPod(t, w.podA, udp(v4.a, v4.out, 1, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, udp(v4.out, v4.a, 53, 1).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, udp(v4.a, v4.out, 1, 53).Bytes()).want(t, 0)
	}
	established()
	w.flood(t, true, w.podA, 1000, func(i int) testutil.Packet { return udp(v4.a, v4.out, uint16(1000+i), 53) })
	before := len(w.flows(t))
	established()
	if after := len(w.flows(t)); before != 1+16+64 || after != before {
		t.Errorf("%d flows before, %d after: the open one is gone", before, after)
	}
}

// TestOnlyHalfOpenFlowsHaveTheirKeysAmongThem: a flow leaves its place when it is open. One that got no place among the
// open ones may still be evicted, so its key stays.
func TestOnlyHalfOpenFlowsHaveTheirKeysAmongThem(t *testing.T) {
	const share = 16
	w := newWorld(t, bpf.Config{HalfShare: share, HalfCommon: 64, FlowQuota: 1})
	w.eachFamily(t, "places", func(t *testing.T, f family) {
		w.forget(t)
		begun := w.share(t, w.a.Share).Begun
		for port := range uint16(3) {
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000+port, 53).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000+port).Bytes()).want(t, 0)
			if port < 2 { // opens the first one; the second one is past the quota
				w.fromPod(t, w.podA, udp(f.a, f.out, 1000+port, 53).Bytes()).want(t, 0)
			}
		}
		for i, want := range []bool{false, true, true} {
			var k bpf.MargayHalfKey
			at := w.a.Share*share + (begun+uint32(i))%share
			if err := w.Maps[bpf.MargayMapHalfKeys].Lookup(at, &k); err != nil {
				t.Fatal(err)
			}
			if (k.Family != 0) != want {
				t.Errorf("flow %d: the family of its key is %d, want one: %t", i, k.Family, want)
			}
		}
	})
}

// TestQueriesFillNothing: 60,000 queries, each from a port of its own and answered at once.
func TestQueriesFillNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{HalfShare: 16, HalfCommon: 64})
	query := func(i int) testutil.Packet { return udp(v4.a, v4.out, uint16(1000+i), 53) }
	answer := func(i int) testutil.Packet { return udp(v4.out, v4.a, 53, uint16(1000+i)) }
	for from := 0; from < 60_000; from += 10 {
		w.flood(t, true, w.podA, 10, func(i int) testutil.Packet { return query(from + i) })
		w.flood(t, false, w.podA, 10, func(i int) testutil.Packet { return answer(from + i) })
	}
	if n := len(w.flows(t)); n > 16+64 {
		t.Errorf("%d flows are known", n)
	}
	if s := w.share(t, w.a.Share); s.Open != 0 || s.Refused != 0 {
		t.Errorf("%+v: a query is an open flow", s)
	}
}

// TestEndpointsCannotFillTheTable: one after the other wants all of it. Each has its share in any case.
func TestEndpointsCannotFillTheTable(t *testing.T) {
	const share, common = 4, 64
	w := newWorld(t, bpf.Config{OpenShare: share, OpenCommon: common})
	sum := uint32(0)
	for i, want := range []uint32{share + 32, share + 16, share + 8, share + 4, share + 2, share + 1, share + 1, share, share} {
		w.a.Share = uint32(10 + i)
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
		for port := range uint16(80) {
			port += uint16(i) * 100
			w.fromPod(t, w.podA, udp(v4.a, v4.out, port, 53).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(v4.out, v4.a, 53, port).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, udp(v4.a, v4.out, port, 53).Bytes()).want(t, 0)
		}
		if s := w.share(t, w.a.Share); s.Open != want || s.Refused != uint64(80-want) {
			t.Errorf("endpoint %d: %+v, want %d open flows", i, s, want)
		}
		sum += want
	}
	if s := w.share(t, bpf.Shares); s.Open != sum-9*share {
		t.Errorf("in common: %+v, want %d", s, sum-9*share)
	}
	w.age(t)
	w.sweepAll(t)
	for number := range bpf.Shares + 1 {
		if s := w.share(t, number); s.Open != 0 {
			t.Errorf("share %d after all flows have expired: %+v", number, s)
		}
	}
}
