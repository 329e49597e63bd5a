package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// from is a policy with one rule, for a prefix.
func from(namespace, name, prefix string) *model.EndpointPolicy {
	e := pod(namespace, name, 1, 1)
	e.Ingress = policyOfRules(model.Ingress, model.MatchRule{Action: model.Allow, Source: model.Side{Nets: []netip.Prefix{netip.MustParsePrefix(prefix)}}})
	return e
}

// A rule for a prefix with thousands of entries inside it moves few of them with each plan, when it comes and when it goes; others'
// changes come in between.
func TestAPrefixAroundManyEntriesComesAndGoesInParts(t *testing.T) {
	const open = 400
	w := parts(Options{Limits: table.Limits{Open: open}})
	large, wide, other := pod("shop", "many", 9, 3000), pod("evil", "m", 1, 1), pod("shop", "a", 2, 1)
	large.Addrs, wide.Addrs, other.Addrs = policytest.Addrs("10.0.0.3"), policytest.Addrs("10.0.0.1"), policytest.Addrs("10.0.0.2")
	w.step(large, wide, other)
	variant, most := 10, 0
	run := func(e *model.EndpointPolicy) (plans int) {
		e.Addrs = wide.Addrs
		for p := w.step(e); p.More; plans++ {
			most = max(most, len(p.Addrs)+len(p.LateAddrs))
			if plans%3 != 0 {
				p = w.step()
				continue
			}
			variant++
			small := pod("shop", "a", variant, 1+plans%2)
			small.Addrs = other.Addrs
			if p = w.step(small); w.k.bound[small.ID].Endpoint != small {
				t.Fatal("another's change has not the plan that takes it in")
			}
		}
		return plans
	}
	comes := run(from("evil", "m", "172.0.0.0/8"))
	if w.sets(wide) != 1 || len(w.Waiting()) != 0 {
		t.Errorf("%d sets, %v are waiting", w.sets(wide), w.Waiting())
	}
	src, made := netip.MustParseAddr("172.9.3.4"), w.k.tables[w.k.bound[wide.ID].Ingress]
	if made.Eval(w.k.addrs.Lookup(src).Class, model.Packet{Src: src, Dst: wide.Addrs[0], Protocol: model.ProtoTCP}).Action != 1 {
		t.Error("an entry inside the prefix is denied")
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
	goes := run(pod("evil", "m", 1, 1))
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
	t.Logf("it comes in %d plans and goes in %d, of at most %d entries", comes, goes, most)
	if most > open/memberCost+20 || comes < 20 || goes < 20 {
		t.Errorf("it comes in %d plans and goes in %d, of at most %d entries", comes, goes, most)
	}
}

// A prefix that is wanted again while it goes, or not any more while it comes, ends as it should be.
func TestAPrefixThatIsWantedAgainWhileItGoes(t *testing.T) {
	for between := range 24 {
		w := parts(Options{Limits: table.Limits{Open: 100}})
		large, e := pod("shop", "many", 9, 200), from("evil", "m", "172.9.0.0/16")
		large.Addrs, e.Addrs = policytest.Addrs("10.0.0.3"), policytest.Addrs("10.0.0.1")
		none := pod("evil", "m", 1, 1)
		none.Addrs = e.Addrs
		w.step(large, none)
		for _, want := range []*model.EndpointPolicy{e, none, e, none} {
			w.step(want)
			for range between {
				w.step()
			}
		}
		for p := w.step(e); p.More; p = w.step() {
		}
		if err := w.k.garbage(); err != nil {
			t.Errorf("after %d plans each: %v", between, err)
		}
		made := w.k.tables[w.k.bound[e.ID].Ingress]
		for i := range 256 {
			src := netip.AddrFrom4([4]byte{172, 9, 0, byte(i)})
			if made.Eval(w.k.addrs.Lookup(src).Class, model.Packet{Src: src, Dst: e.Addrs[0], Protocol: model.ProtoTCP}).Action != 1 {
				t.Fatalf("after %d plans each: %s is denied", between, src)
			}
		}
		// What is inside goes while the prefix stays: none of it is a member any more.
		gone := pod("shop", "many", 9, 1)
		gone.Addrs = large.Addrs
		for p := w.step(gone); p.More; p = w.step() {
		}
		if n := len(w.k.addrs); n > 6 {
			t.Errorf("after %d plans each: %d entries are left", between, n)
		}
		for p := w.step(none); p.More; p = w.step() {
		}
		if err := w.k.garbage(); err != nil {
			t.Errorf("after %d plans each, in the end: %v", between, err)
		}
	}
}
