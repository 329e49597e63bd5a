package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// neighbourOf is a pod of another namespace, with a policy of one set.
func neighbourOf(first int) *model.EndpointPolicy {
	e := pod("shop", "a", first, 1)
	e.Addrs = policytest.Addrs("10.0.0.2")
	return e
}

// A plan with a change writes nothing but that change, however much large policies have left to clean up.
func TestAChangeCarriesNoPartOfABacklog(t *testing.T) {
	w := parts(Options{})
	large := pod("evil", "m", 1, 4000)
	large.Addrs = policytest.Addrs("10.0.0.1")
	w.step(large, neighbourOf(1))
	left := pod("evil", "m", 5000, 0)
	left.Addrs = large.Addrs
	w.step(left)
	w.step() // from here on no endpoint goes back to the large policy
	for i := range 20 {
		if w.Compiler.sets.toClean() < 1000 {
			t.Fatalf("only %d sets are left to clean up: there is no backlog", w.Compiler.sets.toClean())
		}
		p := w.step(neighbourOf(6000 + 2*i))
		if cleaned := len(p.LateAddrs) + len(p.DropSets) + len(p.DropClasses); cleaned > 2 || len(p.Classes) > 2 {
			t.Errorf("change %d: cleans up %d sets, addresses and classes, makes %d classes", i, cleaned, len(p.Classes))
		}
	}
	for w.step().More {
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}

// A small policy is compiled in the plan that has its change. One that changes all the time, and leaves no time for cleaning up,
// leaves no more than a bounded number of sets.
func TestABacklogIsBounded(t *testing.T) {
	w := parts(Options{})
	w.step(neighbourOf(1))
	w.Parts(0)
	const sets = 100
	most := 0
	for turn := range 2*mostLeft/sets + 100 {
		e := pod("evil", "m", 1, 1)
		var list []model.MatchRule
		for i := range sets {
			a := netip.AddrFrom4([4]byte{10, byte(1 + turn>>8), byte(turn), byte(i)})
			list = append(list, model.MatchRule{Action: model.Allow, Source: model.Side{Nets: []netip.Prefix{host(a)}}})
		}
		e.Ingress = policyOfRules(model.Ingress, list...)
		w.step(e)
		if w.sets(e) != sets {
			t.Fatalf("change %d is not in its plan", turn)
		}
		most = max(most, w.Compiler.sets.toClean())
	}
	if most <= mostLeft || most > 2*mostLeft+2*sets {
		t.Errorf("%d sets were left to clean up", most)
	}
	w.Parts(1)
	for w.step().More {
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}
