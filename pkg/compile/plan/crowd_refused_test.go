package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// clusterWide has the ingress policy of a pod belong to no namespace.
func clusterWide(e *model.EndpointPolicy) *model.EndpointPolicy {
	e.Ingress.Tiers[0].Policies[0].Key = model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "of-" + e.ID.Name}
	return e
}

// inNamespace has it belong to the pod's.
func inNamespace(e *model.EndpointPolicy) *model.EndpointPolicy {
	e.Ingress.Tiers[0].Policies[0].Key = model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: e.ID.Namespace, Name: "of-" + e.ID.Name}
	return e
}

// fill returns the policy of a pod that belongs to no namespace, and sets for it that so many addresses are in, each in another combination.
func fill(name string, net byte, addrs int) (*model.EndpointPolicy, map[model.SetID]*model.SetChange) {
	sets := map[model.SetID]*model.SetChange{}
	var ids []model.SetID
	for i := range addrs {
		id := model.SetID(fmt.Sprint(name, i))
		ids = append(ids, id)
		sets[id] = &model.SetChange{Added: []netip.Prefix{host(netip.AddrFrom4([4]byte{8, 8, net, byte(i)}))}}
	}
	return clusterWide(selecting("depot", name, ids...)), sets
}

// allows reports whether a pod accepts packets of an address.
func (w *tenants) allows(e *model.EndpointPolicy, from netip.Addr) bool {
	w.t.Helper()
	v, bound, err := w.k.judge(e.ID, model.Ingress, model.Packet{Src: from, Dst: e.Addrs[0], Protocol: model.ProtoTCP, DstPort: 80})
	if err != nil {
		w.t.Fatal(err)
	}
	return bound && v.Allow
}

// A pod is closed whose policy in force denies a set, and in the same plan a policy of another namespace is refused that refers to the set, too. Until the
// pod is closed, the members are denied.
func TestSetsOfAPolicyInForceAreToldApartUntilItsPodIsClosed(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	member := netip.MustParseAddr("9.9.9.9")
	w.carry(model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{"x": {Added: []netip.Prefix{host(member)}}}})
	evil := lister("evil", "m", 0, 5)
	rules := evil.Ingress.Tiers[0].Policies[0].Rules
	rules[0] = model.MatchRule{Action: model.Deny, Source: model.Side{In: []model.SetID{"x"}}}
	evil.Ingress.Tiers[0].Policies[0].Rules = append(rules, model.MatchRule{Action: model.Allow, Index: len(rules)})
	first, sets := fill("a", 1, 60)
	w.carry(model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{evil.ID: evil, first.ID: first}})
	w.want("evil/m", 5, "")
	shop := inNamespace(pod("shop", "b", 5, 2))
	shop.Ingress.Tiers[0].Policies[0].Rules[1].Source = model.Side{In: []model.SetID{"x"}}

	second, sets := fill("b", 2, 40)
	ch := model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{shop.ID: shop, second.ID: second}}
	for p := w.Update(ch); ; p = w.Update(model.Changes{InSync: true}) {
		for _, write := range w.k.writes(p) {
			if write.do(); w.allows(evil, member) {
				t.Fatalf("after %s a packet passes that the policy denies", write.what)
			}
		}
		if p.empty() {
			break
		}
	}
	w.want("evil/m", -1, "policies of namespace evil")
	w.want("shop/b", -1, "policies of namespace shop")
}

// Two policies come at once that refer to a set, and one of them is refused. The other one goes on to tell its members apart.
func TestSetsOfARefusedPolicyStayForOthers(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	member := netip.MustParseAddr("9.9.9.9")
	w.carry(model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{"x": {Added: []netip.Prefix{host(member)}}}})
	for i := range 6 {
		w.apply(lister("evil", fmt.Sprint(i), i, 1))
	}
	evil, shop := lister("evil", "m", 6, 2), inNamespace(pod("shop", "b", 5, 1))
	evil.Ingress.Tiers[0].Policies[0].Rules[1].Source = model.Side{In: []model.SetID{"x"}}
	policy := shop.Ingress.Tiers[0].Policies[0]
	policy.Rules = []model.MatchRule{{Action: model.Deny, Source: model.Side{In: []model.SetID{"x"}}}, {Action: model.Allow, Index: 1}}
	w.apply(evil, shop)
	w.want("evil/m", -1, "policies of namespace evil")
	w.want("shop/b", 1, "")
	if w.allows(shop, member) || !w.allows(shop, member.Next()) {
		t.Error("the member of the set that the policy denies is allowed, or others are not")
	}
}

// A pod's policy is refused while it is being opened, and in the same update the pod gets an equal one that takes several plans. What was opened of the
// refused one is not there any more.
func TestAPolicyThatWasRefusedIsMadeAgainFromItsStart(t *testing.T) {
	w := &tenants{New(Options{Limits: table.Limits{Open: 40}, Budget: Budget{Room: 100, Assured: Cost{Classes: 8}}}, nil), t, newKernel()}
	sets := []model.SetID{"s0", "s1", "s2", "s3", "s4", "s5", "s6"}
	change := func(of func(i int) *model.SetChange) model.Changes {
		ch := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
		for i, id := range sets {
			ch.Sets[id] = of(i)
		}
		return ch
	}
	first := change(func(i int) *model.SetChange { return &model.SetChange{Added: half(i)[:1]} })
	large := clusterWide(selecting("depot", "a", sets...))
	first.Endpoints[large.ID] = large
	w.carry(first)
	evil := inNamespace(pod("evil", "m", 3, 60))
	for p := w.step(evil); p.More && w.classes.Len() < 30; p = w.step() {
	}
	again := inNamespace(pod("evil", "m", 3, 60))
	grow := change(func(i int) *model.SetChange { return &model.SetChange{Added: half(i)[1:]} })
	grow.Endpoints[again.ID] = again
	before := w.classes.Len()
	carryOut(w.k, w.Update(grow))
	if n := w.classes.Len(); n >= before+119 {
		t.Fatalf("%d classes, and %d before: nothing was refused, and the test tests nothing", n, before)
	}
	w.carry(change(func(i int) *model.SetChange { return &model.SetChange{Removed: half(i)[1:]} }))
	w.want("evil/m", 60, "")
	for i := range 60 {
		if a := netip.AddrFrom4([4]byte{172, 3, 0, byte(i)}); !w.allows(again, a) {
			t.Errorf("packets of %s are denied", a)
		}
	}
}

// As TestPodsThatCannotHaveOnePolicyHaveNoOtherMade, if there is no room for the policy that the second address of a pod makes.
func TestPodsWhoseOtherAddressCannotHaveAPolicyHaveNoOtherMade(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40}, Budget: Budget{Namespace: Cost{Sets: 10}}})
	w.t = t
	var pods []*model.EndpointPolicy
	for i := range 3 {
		e := pod("evil", fmt.Sprint(i), i+1, 12)
		e.Addrs = policytest.Addrs(fmt.Sprintf("10.0.1.%d", i), fmt.Sprintf("10.0.2.%d", i))
		for j := range e.Ingress.Tiers[0].Policies[0].Rules {
			e.Ingress.Tiers[0].Policies[0].Rules[j].Destination.Nets = policytest.Prefixes("10.0.2.0/24")
		}
		e.Egress = portsOpen(100 + 50*i)
		pods = append(pods, e)
	}
	w.stayClosed(pods...)
}

// What is refused of a large namespace at once takes nothing with it of a small one.
func TestPoliciesOfSmallNamespacesAreNotRefusedWithThoseOfLargeOnes(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	first, sets := fill("a", 1, 82)
	w.carry(model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{first.ID: first}})
	all := map[model.EndpointID]*model.EndpointPolicy{}
	for _, e := range []*model.EndpointPolicy{inNamespace(pod("evil", "m", 1, 12)), inNamespace(pod("evil", "n", 2, 9)), inNamespace(pod("shop", "b", 3, 2))} {
		all[e.ID] = e
	}
	carryOut(w.k, w.Update(model.Changes{InSync: true, Endpoints: all}))
	w.want("evil/m", -1, "policies of namespace evil")
	w.want("evil/n", -1, "policies of namespace evil")
	w.want("shop/b", 2, "")
}

// Nothing is kept of policies that were refused and are gone.
func TestNothingIsKeptOfRefusedPoliciesThatAreGone(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	gone := model.Changes{InSync: true}
	for i := range 7 {
		e := lister("evil", fmt.Sprint(i), i, 1)
		gone.Endpoints = map[model.EndpointID]*model.EndpointPolicy{e.ID: nil} // the last one, while there is no room for it
		w.apply(e)
	}
	w.want("evil/6", -1, "policies of namespace evil")
	w.carry(gone)
	if n := len(w.crowd.refused) + len(w.crowd.owners); n > 0 {
		t.Errorf("%d policies and sets are remembered", n)
	}
	for num, u := range w.Compiler.sets.uses.all() {
		if u.hidden && !u.named {
			t.Errorf("set %d is hidden, and the kernel does not have its name", num)
		}
	}
}

// A set that no program refers to any more, and that is defined all the same, is as if none had.
func TestADefinedSetIsNotHiddenOnceItIsForgotten(t *testing.T) {
	s := newSetNumbers(classes.New())
	num := s.number("s")
	u := s.use(num)
	u.defined, u.named, u.refs = true, true, 0
	s.uses.hide([]uint32{num})
	s.forget(num, u)
	if now := s.uses.get(num); now != u || now.hidden || now.named {
		t.Errorf("the set has %+v", now)
	}
}

// halves changes six sets, each of which has another half of the addresses.
func halves(of func(nets []netip.Prefix) *model.SetChange) model.Changes {
	ch := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}}
	for i := range 6 {
		ch.Sets[model.SetID(fmt.Sprint("s", i))] = of(half(i))
	}
	return ch
}

// Sets of cluster-wide policy get fewer members, which changes nothing of the policy that was refused. It is tried when the classes have gone.
func TestARefusedPolicyIsTriedWhenThereIsRoom(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	w.carry(halves(func(nets []netip.Prefix) *model.SetChange { return &model.SetChange{Added: nets} }))
	w.apply(clusterWide(selecting("depot", "a", "s0", "s1", "s2", "s3", "s4", "s5")))
	w.apply(lister("shop", "b", 6, 1))
	w.want("shop/b", -1, "policies of namespace shop")
	w.carry(halves(func(nets []netip.Prefix) *model.SetChange { return &model.SetChange{Removed: nets} }))
	w.want("shop/b", 1, "")
}

// There is room for one of two policies that were refused: the one that was first.
func TestNoMoreIsTriedThanThereIsRoomFor(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	first, sets := fill("a", 1, 80)
	w.carry(model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{first.ID: first}})
	w.apply(inNamespace(pod("shop", "a", 3, 10)))
	w.apply(inNamespace(pod("depot", "b", 4, 10)))
	w.want("shop/a", -1, "policies of namespace shop")
	w.want("depot/b", -1, "policies of namespace depot")
	fewer := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}}
	for i := range 19 {
		id := model.SetID(fmt.Sprint("a", i))
		fewer.Sets[id] = &model.SetChange{Removed: sets[id].Added}
	}
	w.carry(fewer)
	w.want("shop/a", 10, "")
	w.want("depot/b", -1, "policies of namespace depot")
}

// There is no more room than before, but the sets of a refused policy have fewer members. Members that come are no reason to try it.
func TestARefusedPolicyIsTriedWhenItsSetsHaveFewerMembers(t *testing.T) {
	w := newTenants(t, Budget{}.WithClasses(100))
	first, sets := fill("a", 1, 70)
	w.carry(model.Changes{InSync: true, Sets: sets, Endpoints: map[model.EndpointID]*model.EndpointPolicy{first.ID: first}})
	w.carry(halves(func(nets []netip.Prefix) *model.SetChange { return &model.SetChange{Added: nets} }))
	w.apply(selecting("shop", "b", "s0", "s1", "s2", "s3", "s4", "s5"))
	w.want("shop/b", -1, "policies of namespace shop")
	refused := w.crowd.refused[0]
	w.carry(model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{"s0": {Added: []netip.Prefix{host(netip.MustParseAddr("9.9.9.9"))}}}})
	if w.crowd.changed["shop"] != 0 || len(w.crowd.refused) != 1 || w.crowd.refused[0] != refused {
		t.Error("a member that comes has it tried")
	}
	w.carry(halves(func(nets []netip.Prefix) *model.SetChange { return &model.SetChange{Removed: nets[1:]} }))
	w.want("shop/b", 6, "")
}
