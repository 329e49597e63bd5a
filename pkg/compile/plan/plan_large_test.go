package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// parts are a compiler whose plans add few sets, and the kernel that they are carried out on.
func parts(o Options) *tenants { return &tenants{New(o, nil), nil, newKernel()} }

// step carries out one plan.
func (w *tenants) step(endpoints ...*model.EndpointPolicy) Plan {
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for _, e := range endpoints {
		ch.Endpoints[e.ID] = e
	}
	p := w.Update(ch)
	carryOut(w.k, p)
	return p
}

// sets is how many sets an endpoint's ingress policy in the kernel has; -1: it is not bound.
func (w *tenants) sets(e *model.EndpointPolicy) int {
	b, ok := w.k.bound[e.ID]
	if !ok {
		return -1
	}
	return len(w.k.tables[b.Ingress].Program.Sets)
}

func TestALargePolicyTakesSeveralPlansAndOthersGoOn(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40}})
	large, other := pod("evil", "m", 1, 1), pod("shop", "a", 2, 1)
	large.Addrs, other.Addrs = policytest.Addrs("10.0.0.1"), policytest.Addrs("10.0.0.2")
	if p := w.step(large, other); p.More {
		t.Error("the first plan leaves something")
	}
	grown := pod("evil", "m", 3, 50)
	grown.Addrs = large.Addrs
	if p := w.step(grown); !p.More || w.sets(grown) != 1 || !w.Waiting()[grown.ID] || len(p.Classes) > 10 {
		t.Errorf("first part: more %v, %d sets, %d classes", p.More, w.sets(grown), len(p.Classes))
	}
	changed := pod("shop", "a", 4, 2)
	changed.Addrs = other.Addrs
	if p := w.step(changed); !p.More || w.sets(changed) != 2 || w.sets(grown) != 1 {
		t.Errorf("others: more %v, %d sets, of the large one %d", p.More, w.sets(changed), w.sets(grown))
	}
	plans := 0
	for w.step().More {
		plans++
	}
	if plans < 5 || w.sets(grown) != 50 || len(w.Waiting()) != 0 {
		t.Errorf("after %d more plans it has %d sets", plans, w.sets(grown))
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}

func TestALargePolicyThatIsGoneBeforeItIsMadeLeavesNothing(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40}})
	small, large := pod("evil", "m", 1, 1), pod("evil", "m", 3, 50)
	w.step(small)
	w.step(large)
	w.step()
	for w.step(small).More {
	}
	if w.sets(small) != 1 || len(w.Waiting()) != 0 {
		t.Errorf("%d sets", w.sets(small))
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}

// A policy that no kind of table is for is refused: its endpoint keeps what it had, or is closed.
func TestAPolicyThatIsTooComplexIsRefused(t *testing.T) {
	o := Options{Limits: table.Limits{Steps: 10, Walk: 20, Bytes: 1}}
	w := parts(o)
	good, fresh := pod("evil", "m", 1, 1), pod("evil", "n", 2, 50)
	good.Addrs, fresh.Addrs = policytest.Addrs("10.0.0.1"), policytest.Addrs("10.0.0.2")
	w.step(good)
	bad := pod("evil", "m", 3, 50)
	bad.Addrs = good.Addrs
	for p := w.step(bad, fresh); p.More; p = w.step() {
	}
	if w.sets(bad) != 1 || w.sets(fresh) != -1 {
		t.Errorf("%d and %d sets, want 1 and -1", w.sets(bad), w.sets(fresh))
	}
	for _, e := range []*model.EndpointPolicy{bad, fresh} {
		if err := w.Failed()[EndpointDirection{e.ID, model.Ingress}]; !errors.Is(err, ErrTooComplex) {
			t.Errorf("%v: error %v", e.ID, err)
		}
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
	// It is not tried again as long as it is the same.
	w.endpoints.staleAll()
	if p := w.step(); len(p.SetNames)+len(p.Tables) != 0 {
		t.Errorf("tried again: %d sets, %d tables", len(p.SetNames), len(p.Tables))
	}
	w.step(good)
	if err := w.Failed()[EndpointDirection{good.ID, model.Ingress}]; err != nil || w.sets(good) != 1 {
		t.Errorf("after it is small again: %v", err)
	}
}

// A table that cannot be made again denies what it does not know.
func TestATableThatCannotBeMadeAgainDeniesWhatItDoesNotKnow(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.1.0.0/24"), "b": policytest.Prefixes("10.2.0.0/24")}
	web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a"), allowFrom("b")), openEgress, "10.0.0.1")
	c, k := New(Options{}, nil), newKernel()
	old := state(members, web)
	carryOut(k, c.Update(old.changes(nil)))
	c.programs.limits = table.Limits{Bytes: 1, Walk: 1}
	members["a"] = append(slices.Clone(members["a"]), policytest.Prefixes("10.2.0.7/32")...)
	carryOut(k, c.Update(state(members, web).changes(old)))
	for from, want := range map[string]bool{"10.1.0.1": true, "10.2.0.1": true, "10.2.0.7": false} {
		class := k.addrs.Lookup(netip.MustParseAddr(from)).Class
		b := k.bound[web.ID]
		got := k.tables[b.Ingress].Eval(class, model.Packet{Src: netip.MustParseAddr(from), Dst: policytest.Own4, Protocol: model.ProtoTCP})
		if (got.Action == 1) != want {
			t.Errorf("from %s: allowed %v, want %v", from, !want, want)
		}
	}
	if err := c.Failed()[EndpointDirection{web.ID, model.Ingress}]; !errors.Is(err, ErrTooComplex) {
		t.Errorf("error %v", err)
	}
}

// Tables get more room for rows without being made again.
func TestTablesAreEnlargedForNewClasses(t *testing.T) {
	w := parts(Options{})
	other, large := pod("shop", "a", 2, 1), pod("evil", "m", 1, 3000)
	other.Addrs, large.Addrs = policytest.Addrs("10.0.0.2"), policytest.Addrs("10.0.0.1")
	w.step(other)
	had := w.k.bound[other.ID].Ingress
	enlarged := 0
	for p := w.step(large); ; p = w.step() {
		enlarged += len(p.Enlarged)
		if len(p.Grow) != 0 {
			t.Error("a table was made again")
		}
		if !p.More {
			break
		}
	}
	if enlarged == 0 || w.k.bound[other.ID].Ingress != had || len(w.k.tables[had].Rows) < 3000/32 {
		t.Errorf("enlarged %d times, table %d to %d", enlarged, had, w.k.bound[other.ID].Ingress)
	}
}

// A large policy enlarges few tables with each part, however many there are, and fewer the larger they are.
func TestTablesAreEnlargedAFewAtATime(t *testing.T) {
	w := parts(Options{})
	var others []*model.EndpointPolicy
	for i := range 5 * enlargedAhead {
		e := pod("shop", fmt.Sprint("p", i), 2, i+1)
		e.Addrs = policytest.Addrs(fmt.Sprint("10.0.1.", i))
		others = append(others, e)
	}
	w.step(others...)
	large := pod("evil", "m", 3, 8000)
	enlarged := 0
	for p := w.step(large); p.More; p = w.step() {
		if len(p.Enlarged) > enlargedAhead {
			t.Fatalf("one plan enlarges %d tables", len(p.Enlarged))
		}
		cost, last := 0, 0
		for _, t := range p.Enlarged {
			last = 1 + len(t.Rows)/enlargedRows
			cost += last
		}
		if cost >= enlargedAhead+last && cost > last {
			t.Fatalf("one plan enlarges %d tables at a cost of %d, the last of %d", len(p.Enlarged), cost, last)
		}
		enlarged += len(p.Enlarged)
	}
	if w.sets(large) != 8000 || enlarged < 2*len(others) {
		t.Errorf("%d sets, %d tables enlarged", w.sets(large), enlarged)
	}
}

// work is how much a plan opens and cleans up, in the units of MaxOpen.
func work(p Plan) (opened, cleaned int) {
	opened = nameCost*len(p.RuleNames) + memberCost*(len(p.SetNames)+len(p.Addrs))
	return opened, max(memberCost*(len(p.DropSets)+len(p.LateAddrs)), len(p.DropRules))
}

// Between the parts of a large policy that is added, changed or removed the changes of others are enforced, each with the
// plan that takes it in; no part is larger than what a plan may do.
func TestNobodyWaitsForALargePolicy(t *testing.T) {
	const open = 40
	w := parts(Options{Limits: table.Limits{Open: open}})
	other := pod("shop", "a", 2, 1)
	other.Addrs = policytest.Addrs("10.0.0.2")
	w.step(other)
	variant := 10
	for _, turn := range []struct {
		what  string
		large *model.EndpointPolicy
	}{{"added", pod("evil", "m", 1, 50)}, {"changed", pod("evil", "m", 3, 60)}, {"removed", pod("evil", "m", 4, 0)}} {
		what, large := turn.what, turn.large
		large.Addrs = policytest.Addrs("10.0.0.1")
		p, plans := w.step(large), 1
		for ; p.More; plans++ {
			if opened, cleaned := work(p); opened > open+2*memberCost || cleaned > open+2*memberCost {
				t.Errorf("%s: one plan opens %d and cleans up %d", what, opened, cleaned)
			}
			if plans%3 != 0 {
				p = w.step()
				continue
			}
			variant++
			small := pod("shop", "a", variant, 1+plans%2)
			small.Addrs = other.Addrs
			if p = w.step(small); w.sets(small) != 1+plans%2 || w.k.bound[small.ID].Endpoint != small {
				t.Errorf("%s: after %d plans another's change has not the plan that takes it in", what, plans)
			}
		}
		if err := w.k.garbage(); err != nil || plans < 4 {
			t.Errorf("%s: %d plans, %v", what, plans, err)
		}
	}
}

// A policy that comes back before what it left is cleaned up has all of its members.
func TestALargePolicyThatComesBackWhileItIsCleanedUp(t *testing.T) {
	for between := range 12 {
		w := parts(Options{Limits: table.Limits{Open: 40}})
		large, small := pod("evil", "m", 1, 50), pod("evil", "m", 2, 1)
		w.step(large)
		w.step(small)
		for range between {
			w.step()
		}
		for p := w.step(large); p.More; p = w.step() {
		}
		if err := w.k.garbage(); err != nil {
			t.Errorf("after %d plans: %v", between, err)
		}
		table := w.k.tables[w.k.bound[large.ID].Ingress]
		for id, nets := range table.Program.NetSets {
			for _, p := range nets {
				setNumber, _ := w.Compiler.sets.Find(id)
				if !slices.Contains(w.Address(p.Addr()).Sets, id) || !slices.Contains(w.k.classes[w.k.addrs.Lookup(p.Addr()).Class].Sets, setNumber) {
					t.Fatalf("after %d plans: %s is not in its set any more", between, p)
				}
			}
		}
	}
}

// Rows that tables have already, of classes that had the numbers before, are not written again.
func TestRowsThatAreThereAreNotWritten(t *testing.T) {
	w := parts(Options{})
	other := pod("shop", "a", 2, 1)
	other.Addrs = policytest.Addrs("10.0.0.2")
	w.step(other)
	rows := func(large *model.EndpointPolicy) (n int) {
		had := w.k.bound[other.ID].Ingress
		for p, first := w.step(large), true; first || p.More; first = false {
			for _, r := range p.Rows {
				if r.Table == had {
					n++
				}
			}
			if p.More {
				p = w.step()
			}
		}
		return n
	}
	if n := rows(pod("evil", "m", 1, 30)); n == 0 {
		t.Error("the other's table has no rows of the first policy: the test tests nothing")
	}
	rows(pod("evil", "m", 3, 0))
	if n := rows(pod("evil", "m", 4, 30)); n != 0 {
		t.Errorf("%d rows of the other's table are written again", n)
	}
}

// Two pods cannot have their ingress policies, and each egress policy takes several plans. Nothing is made for pods that stay closed: what one of them did not need
// any more was made again while the other one's was.
func TestPodsThatCannotHaveOnePolicyHaveNoOtherMade(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40}, Budget: Budget{Namespace: Cost{Sets: 10}}})
	w.t = t
	var pods []*model.EndpointPolicy
	for i := range 3 {
		e := pod("evil", fmt.Sprint(i), i+1, 12)
		e.Egress = portsOpen(100 + 50*i)
		pods = append(pods, e)
	}
	w.stayClosed(pods...)
}

// portsOpen is an egress policy of so many rules.
func portsOpen(n int) *model.DirectionPolicy {
	var rules []model.MatchRule
	for port := range n {
		side := model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: uint16(2 * port), Hi: uint16(2 * port)}}}}
		rules = append(rules, model.MatchRule{Action: model.Allow, Protocol: new(model.ProtoTCP), Destination: side})
	}
	return policyOfRules(model.Egress, rules...)
}

// stayClosed demands that the plans for pods that cannot have their ingress policy come to an end.
func (w *tenants) stayClosed(pods ...*model.EndpointPolicy) {
	w.t.Helper()
	w.step() // the first plan does everything
	plans := 0
	for p := w.step(pods...); p.More; p = w.step() {
		if plans++; plans > 1000 {
			w.t.Fatal("the plans have no end")
		}
	}
	for _, e := range pods {
		if n := w.sets(e); n >= 0 || w.Failed()[EndpointDirection{e.ID, model.Ingress}] == nil {
			w.t.Errorf("%v has a policy of %d sets: %v", e.ID, n, w.Failed())
		}
	}
}
