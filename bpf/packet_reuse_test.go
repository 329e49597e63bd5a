package bpf_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// TestAVerdictIsNotWrittenIntoAnotherFlow: while the ingress policy of B is asked about an allowed flow, that flow is
// evicted, and its memory given to one that B denies. That B allows must not be found there. (It was in 7 to
// 602 of 10,000 rounds.)
func TestAVerdictIsNotWrittenIntoAnotherFlow(t *testing.T) {
	w := newWorld(t, bpf.Config{HalfShare: 1, HalfCommon: 1, EventRate: noEvents})
	rules := make([]bpf.Rule, 250) // walked, so that it takes some time
	for i := range rules {
		rules[i] = rule(bpf.RuleAllow, 17, 0, 1)
	}
	w.policy(t, 10, append(rules, rule(bpf.RuleAllow, 17, 0, 80))...)
	w.publish(t, w.b, word(10, 2), word(slotAllow, 2))
	allowed, between, denied := udp(v4.a, v4.b, 1000, 80).Bytes(), udp(v4.a, v4.out, 1000, 80).Bytes(), udp(v4.a, v4.b, 1000, 22).Bytes()
	var sides sync.WaitGroup
	var ended atomic.Bool
	run := func(program string, at skb, frame []byte) int32 {
		ret, err := w.Programs[program].Run(&ebpf.RunOptions{Data: frame, Context: at})
		if err != nil {
			t.Error(err)
		}
		return int32(ret)
	}
	var turn atomic.Int64
	sides.Go(func() {
		w.ns.Do(t, func() {
			for done := int64(0); !ended.Load(); {
				if now := turn.Load(); now != done {
					run(bpf.MargayProgToPod, skb{Ifindex: w.podB, IngressIfindex: w.podA}, allowed)
					done = now
				}
			}
		})
	})
	passed, rounds := 0, 0
	w.ns.Do(t, func() {
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); rounds++ {
			w.empty(t, bpf.MargayMapCt4)
			run(bpf.MargayProgFromPod, skb{Ifindex: w.podA}, allowed)
			turn.Add(1)
			for range rounds % 64 * 20 { // the two meet at different points
				_ = ended.Load()
			}
			for _, frame := range [][]byte{between, denied} {
				run(bpf.MargayProgFromPod, skb{Ifindex: w.podA}, frame)
			}
			at := skb{Ifindex: w.podB, IngressIfindex: w.podA}
			first, second := run(bpf.MargayProgToPod, at, denied), run(bpf.MargayProgToPod, at, denied)
			if first == next && second == next {
				passed++
			}
		}
	})
	ended.Store(true)
	sides.Wait()
	t.Logf("%d rounds", rounds)
	if passed > 0 {
		t.Errorf("what policy denies has passed in %d of %d rounds", passed, rounds)
	}
}
