package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// pageOfAddrs are the addresses that lists divide: 256 of them, and each list has those whose number has one bit.
func half(bit int) (nets []netip.Prefix) {
	for i := range 256 {
		if i>>bit&1 != 0 {
			nets = append(nets, host(netip.AddrFrom4([4]byte{200, 1, 1, byte(i)})))
		}
	}
	return nets
}

// lister is a pod with an ingress policy of its namespace that has so many of these lists, from first on.
func lister(namespace, name string, first, lists int) *model.EndpointPolicy {
	e := pod(namespace, name, 0, lists)
	policy := e.Ingress.Tiers[0].Policies[0]
	policy.Key = model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: "of-" + name}
	for i := range policy.Rules {
		policy.Rules[i].Source.Nets = half(first + i)
	}
	return e
}

// Each of the tenant's policies has one list, and the lists divide each other's addresses. The newest is refused before there is no room left
// for others, who get more of their own afterwards.
func TestListsOfOneNamespaceLeaveClassesToOthers(t *testing.T) {
	const room = 100
	w := newTenants(t, Budget{}.WithClasses(room))
	for i := range 6 {
		w.apply(lister("evil", fmt.Sprint(i), i, 1))
	}
	w.apply(lister("evil", "6", 6, 1)) // 128 combinations
	for i := range 6 {
		w.want(fmt.Sprint("evil/", i), 1, "")
	}
	w.want("evil/6", -1, "policies of namespace evil: over the limit: addresses would be in 129 combinations of sets, limit 88")
	w.apply(lister("shop", "a", 7, 1)) // twice as many as there are
	w.want("shop/a", 1, "")
	w.want("evil/5", -1, "policies of namespace evil")
	w.want("evil/4", 1, "")
	w.fits(room)
	w.apply(lister("evil", "6", 0, 1)) // like another
	w.want("evil/6", 1, "")
}

// fits checks that no class has a number that there is no room for.
func (w *tenants) fits(room uint32) {
	w.t.Helper()
	for p, entry := range w.k.addrs {
		if entry.Class >= room {
			w.t.Errorf("%s is in class %d, of %d", p, entry.Class, room)
		}
	}
}

// empty reports whether nothing is written and nothing is left to do.
func (p Plan) empty() bool {
	return !p.More && !p.FollowUp && len(p.Addrs)+len(p.LateAddrs)+len(p.DropClasses)+len(p.DropSets)+len(p.DropRules)+len(p.DropTables)+len(p.Bind)+len(p.Unbind) == 0
}

// selecting is a pod whose ingress policy allows these sets.
func selecting(namespace, name string, sets ...model.SetID) *model.EndpointPolicy {
	e := lister(namespace, name, 0, len(sets))
	rules := e.Ingress.Tiers[0].Policies[0].Rules
	for i, id := range sets {
		rules[i].Source = model.Side{In: []model.SetID{id}}
	}
	return e
}

// The members of sets that rules refer to already make too many combinations: network sets with other labels. The policies that refer
// to them are closed, the newest first, and come back with the sets.
func TestSetsThatGrowLeaveClassesToOthers(t *testing.T) {
	const room = 100
	w := newTenants(t, Budget{}.WithClasses(room))
	sets := []model.SetID{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}
	change := func(members func(i int) []netip.Prefix, removed bool) {
		ch := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}}
		for i, id := range sets {
			if ch.Sets[id] = (&model.SetChange{Added: members(i)}); removed {
				*ch.Sets[id] = model.SetChange{Removed: members(i)}
			}
		}
		w.carry(ch)
	}
	change(func(i int) []netip.Prefix { return []netip.Prefix{host(netip.AddrFrom4([4]byte{9, 9, 9, byte(i)}))} }, false)
	w.apply(selecting("evil", "a", sets...), selecting("evil", "b", sets[:2]...), lister("shop", "a", 7, 1), pod("shop", "b", 3, 2))
	w.want("evil/a", 7, "")
	change(half, false)
	w.want("evil/a", -1, "policies of namespace evil: over the limit: addresses would be in")
	w.want("evil/b", 2, "")
	w.want("shop/a", 1, "")
	w.apply(lister("shop", "b", 6, 1))
	w.want("shop/b", 1, "")
	w.fits(room)
	change(half, true)
	w.want("evil/a", 7, "")
}

// apply carries out what endpoints are to be.
func (w *tenants) apply(endpoints ...*model.EndpointPolicy) {
	w.t.Helper()
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for _, e := range endpoints {
		ch.Endpoints[e.ID] = e
	}
	w.carry(ch)
}

// carry carries out changes, and all plans that follow.
func (w *tenants) carry(ch model.Changes) {
	w.t.Helper()
	for p := w.Update(ch); ; p = w.Update(model.Changes{InSync: true}) {
		carryOut(w.k, p)
		if !p.More && !p.FollowUp { // the agent makes no more
			break
		}
	}
	if err := w.k.garbage(); err != nil {
		w.t.Error(err)
	}
}

// A policy that changes is refused, and the endpoint keeps the one before.
func TestAPolicyThatMakesTooManyClassesLeavesWhatWasEnforced(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	w.apply(lister("evil", "a", 0, 4), lister("shop", "a", 4, 2))
	w.apply(lister("evil", "a", 4, 4))
	w.want("evil/a", 4, "policies of namespace evil")
	w.want("shop/a", 2, "")
}

// Namespaces that are small each are many combinations together. What is enforced of them stays, and what comes last is refused.
func TestSmallNamespacesKeepWhatIsEnforced(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	for i := range 8 {
		w.apply(lister(fmt.Sprint("n", i), "a", i, 1))
	}
	for i := range 6 {
		w.want(fmt.Sprintf("n%d/a", i), 1, "")
	}
	w.want("n6/a", -1, "policies of namespace n6")
	w.want("n7/a", -1, "policies of namespace n7")
	w.carry(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{model.WorkloadID("n0", "a"): nil, model.WorkloadID("n1", "a"): nil}})
	w.want("n6/a", 1, "")
}

// What is left of the room is there for others. Nothing that is in force is refused before that is used, too.
func TestNobodyIsClosedWhileThereIsRoom(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	for i := range 6 {
		w.apply(lister("evil", fmt.Sprint(i), i, 1))
	}
	w.apply(pod("shop", "b", 3, 24))
	if n := w.classes.Len(); n <= w.crowd.most() || n > w.crowd.full() {
		t.Fatalf("%d classes: the test tests nothing", n)
	}
	w.want("shop/b", 24, "")
	w.want("evil/5", 1, "")
	w.apply(lister("evil", "6", 6, 1))
	w.want("evil/6", -1, "policies of namespace evil")
	w.apply(pod("depot", "a", 4, 10))
	w.want("depot/a", 10, "")
	w.want("evil/5", -1, "policies of namespace evil")
	w.fits(100)
}

// Policies that belong to no namespace are not refused.
func TestClusterWidePoliciesAreNotRefused(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	for i := range 8 {
		e := lister("shop", fmt.Sprint(i), i, 1)
		e.Ingress.Tiers[0].Policies[0].Key = model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint(i)}
		w.apply(e)
		w.want(fmt.Sprint("shop/", i), 1, "")
	}
}

// A staged policy is refused, and what is enforced stays.
func TestStagedPoliciesAreRefusedAlone(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	e, staged := lister("evil", "a", 0, 2), lister("evil", "a", 0, 8)
	staged.ID = e.ID.Shadow()
	w.carry(model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{e.ID: e, staged.ID: staged}})
	w.want("evil/a", 2, "")
	if n := w.classes.Len(); n > 88 {
		t.Errorf("%d classes", n)
	}
}

// Without a limit nothing is refused.
func TestWithoutALimitAllClassesAreMade(t *testing.T) {
	w := New(Options{Limits: table.Limits{}}, nil)
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for i := range 8 {
		e := lister("evil", fmt.Sprint(i), i, 1)
		ch.Endpoints[e.ID] = e
	}
	w.Update(ch)
	if n := w.Classes().Len(); n < 256 || len(w.Failed()) > 0 {
		t.Errorf("%d classes; failed: %v", n, w.Failed())
	}
}
