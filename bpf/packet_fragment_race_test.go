package bpf_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// TestARecordIsOfOneDatagram: first fragments of more datagrams than a set has room for are recorded on one CPU, most of
// them allowed, while on another one a later fragment of one that policy denies looks for its first one. It must not find
// its own ends with another's verdict. (Without a lock it did 2 to 11 times of some 100,000.)
func TestARecordIsOfOneDatagram(t *testing.T) {
	w := newWorld(t, bpf.Config{EventRate: noEvents})
	w.policy(t, 10, rule(bpf.RuleAllow, 17, 0, 53))
	w.publish(t, w.a, word(10, 2), word(slotAllow, 2))
	denied := fragments(udp(v4.out, v4.a, 1000, 54), 0)
	firsts := [][]byte{denied[0]}
	for i := range uint32(bpf.FragWays) {
		firsts = append(firsts, fragments(udp(v4.out, v4.a, 1000, 53), uint32(bpf.FragSets)*(i+1))[0])
	}
	at := skb{Ifindex: w.podA, IngressIfindex: outside}
	run := func(frame []byte) int32 {
		ret, err := w.Programs[bpf.MargayProgToPod].Run(&ebpf.RunOptions{Data: frame, Context: at})
		if err != nil {
			t.Error(err)
		}
		return int32(ret)
	}
	var sides sync.WaitGroup
	var ended atomic.Bool
	sides.Go(func() {
		w.ns.Do(t, func() {
			for !ended.Load() {
				for _, frame := range firsts {
					run(frame)
				}
			}
		})
	})
	passed, rounds := 0, 0
	w.ns.Do(t, func() {
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); rounds++ {
			if run(denied[1]) == next {
				passed++
			}
		}
	})
	ended.Store(true)
	sides.Wait()
	t.Logf("%d rounds", rounds)
	if passed > 0 {
		t.Errorf("a later fragment of a denied datagram has passed %d times of %d", passed, rounds)
	}
}
