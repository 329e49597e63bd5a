package iptables

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
)

// Somebody alters a set in a way that leaves the number of its entries: looks find that without a resync, and the next Apply repairs it.
func TestEntriesThatOthersAlterAreFoundByLooks(t *testing.T) {
	alter := map[string]func(e ipsets.Entry) []ipsets.Change{
		"another mark": func(e ipsets.Entry) []ipsets.Change {
			e.Mark.Value ^= e.Mark.Mask
			return []ipsets.Change{{Entry: e}}
		},
		"another member": func(e ipsets.Entry) []ipsets.Change {
			other := e
			other.Interface = "cali999"
			return []ipsets.Change{{Entry: e, Remove: true}, {Entry: other}}
		},
	}
	for name, changes := range alter {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t)
			node := &wokenNode{}
			n.kernel.Node = node
			n.mustApply(t, narrow.updates()...)
			n.Resync() // so that nothing is to be looked at again
			n.mustApply(t)
			if _, err := n.Sweep(); err != nil {
				t.Fatal(err)
			}
			node.nudges = 0
			want := n.contents(t)
			set := n.state.sets.of[4].ingress
			var victim ipsets.Entry
			for e := range set.All() {
				victim = e
			}
			if _, err := n.sets.Write(set.Spec(), changes(victim)); err != nil {
				t.Fatal(err)
			}
			if n.contents(t) == want {
				t.Fatal("nothing is altered")
			}
			testutil.WaitFor(t, 30*time.Second, "a look to find the entry", func() bool {
				if _, err := n.Sweep(); err != nil {
					t.Fatal(err)
				}
				return node.nudges > 0
			})
			if n.mustApply(t); normal(n.contents(t)) != normal(want) || n.repairs == 0 {
				t.Errorf("after %d repairs there is\n%s\nwant\n%s", n.repairs, n.contents(t), want)
			}
		})
	}
}

// slowSets are sets whose entries take some time to list.
type slowSets struct {
	*ipsets.Fake
	delay time.Duration
	lists map[string]int // by set
}

// List implements ipsets.Kernel.
func (s *slowSets) List(spec ipsets.Spec, each func(ipsets.Entry)) error {
	time.Sleep(s.delay)
	s.lists[spec.Name]++
	return s.Fake.List(spec, each)
}

// Comparing entries takes one percent of the time, and each look waits for a bounded number of them. Every set has its turn that is not too large.
func TestSetsAreComparedInTurnForOnePercentOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := &slowSets{Fake: ipsets.NewFake(), lists: map[string]int{}}
		s := newSets(kernel, map[uint8]chains.Names{4: {World: chains.WorldA}, 6: {World: chains.WorldA}})
		if err := s.ensure(); err != nil {
			t.Fatal(err)
		}
		large := s.of[4].class
		changes := make([]ipsets.Change, mostCompared+1)
		for i := range changes {
			changes[i].Key = ipsets.Key{Prefix: single(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))}
		}
		if _, err := large.Apply(changes); err != nil {
			t.Fatal(err)
		}
		for _, delay := range []time.Duration{time.Millisecond, 20 * time.Millisecond} {
			kernel.delay, kernel.lists, s.rest = delay, map[string]int{}, time.Time{}
			const period = 10 * time.Minute
			lists, longest, begun := 0, time.Duration(0), time.Now()
			for time.Since(begun) < period {
				look := time.Now()
				if found, err := s.touched(); found || err != nil {
					t.Fatal(found, err)
				}
				longest = max(longest, time.Since(look))
				time.Sleep(setsEvery * lookEvery)
			}
			for _, n := range kernel.lists {
				lists += n
			}
			if share := float64(lists) * delay.Seconds() / period.Seconds(); share < 0.005 || share > 0.0105 {
				t.Errorf("%v for a set: comparing them takes %.2f %% of the time", delay, 100*share)
			}
			if longest > comparedFor+delay {
				t.Errorf("%v for a set: one look takes %v", delay, longest)
			}
			if n := len(kernel.lists); n != len(s.all())-1 || kernel.lists[large.Spec().Name] != 0 {
				t.Errorf("%v for a set: of %d sets these are compared: %v; want all but %s", delay, len(s.all()), kernel.lists, large.Spec().Name)
			}
		}
	})
}
