package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

func endpointPolicy(name string, ingress, egress *model.DirectionPolicy, own ...string) *model.EndpointPolicy {
	return &model.EndpointPolicy{
		ID: model.WorkloadID("ns", name), Iface: "cali" + name, Addrs: policytest.Addrs(own...), Ingress: ingress, Egress: egress,
	}
}

func policyOfRules(d model.Direction, rules ...model.MatchRule) *model.DirectionPolicy {
	for i := range rules {
		rules[i].Index = i
	}
	key := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}
	return &model.DirectionPolicy{Direction: d, Tiers: []model.TierPolicy{{
		Name: "default", Default: model.Deny, Policies: []*model.PolicyRules{{Key: key, Rules: rules}},
	}}}
}

func allowFrom(set model.SetID) model.MatchRule {
	return model.MatchRule{Action: model.Allow, Source: model.Side{In: []model.SetID{set}}}
}

// state is a cluster of pods that allow from one set each, and the set's members.
func state(members map[model.SetID][]netip.Prefix, endpoints ...*model.EndpointPolicy) *cluster {
	c := newCluster()
	for id, m := range members {
		c.sets[id] = m
	}
	for _, e := range endpoints {
		c.endpoints[e.ID] = e
	}
	return c
}

func carryOut(k *kernel, p Plan) {
	for _, w := range k.writes(p) {
		w.do()
	}
}

func isEmpty(p Plan) bool { return cmp.Equal(p, Plan{}) }

var openEgress = policyOfRules(model.Egress, model.MatchRule{Action: model.Allow})

func TestNothingIsWrittenBeforeInSync(t *testing.T) {
	c := New(Options{}, nil)
	s := state(map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32")},
		endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1"))
	ch := s.changes(nil)
	ch.InSync = false
	if p := c.Update(ch); !isEmpty(p) {
		t.Errorf("before in sync: %+v", p)
	}
	if p := c.Update(model.Changes{InSync: true}); len(p.Bind) != 1 {
		t.Errorf("in sync: %d bindings, want the one of web", len(p.Bind))
	}
	if p := c.Update(model.Changes{}); !isEmpty(p) {
		t.Errorf("no changes: %+v", p)
	}
}

func TestReplicasShareTheirTables(t *testing.T) {
	in := policyOfRules(model.Ingress, allowFrom("a"), model.MatchRule{
		Action: model.Allow, Destination: model.Side{Nets: policytest.Prefixes("10.9.0.0/24")},
	})
	s := state(nil)
	for i := range 20 {
		e := endpointPolicy(fmt.Sprint("web", i), in, openEgress, fmt.Sprint("10.0.0.", i))
		s.endpoints[e.ID] = e
	}
	odd := endpointPolicy("odd", in, openEgress, "10.9.0.1")
	s.endpoints[odd.ID] = odd
	p := New(Options{}, nil).Update(s.changes(nil))
	if len(p.Bind) != 21 || len(p.Tables) != 3 {
		t.Errorf("%d bindings and %d tables, want 21 and 3: ingress, ingress of the one in 10.9.0.0/24, egress", len(p.Bind), len(p.Tables))
	}
}

func TestAPodThatChangesItsLabelsIsOneWrite(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32", "10.0.0.3/32"), "b": policytest.Prefixes("10.0.0.4/32")}
	web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a"), allowFrom("b")), openEgress, "10.0.0.1")
	c := New(Options{}, nil)
	old := state(members, web)
	c.Update(old.changes(nil))
	members["a"], members["b"] = policytest.Prefixes("10.0.0.2/32"), policytest.Prefixes("10.0.0.3/32", "10.0.0.4/32")
	got := c.Update(state(members, web).changes(old))
	want := Plan{Addrs: []classes.AddrChange{{Prefix: policytest.Prefixes("10.0.0.3/32")[0], Class: c.Address(netip.MustParseAddr("10.0.0.4")).Class.ID}}}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Error(d)
	}
}

func TestSetsThatOnlyConcernTheLocalSideMakeNoClasses(t *testing.T) {
	local := model.MatchRule{Action: model.Allow, Destination: model.Side{In: []model.SetID{"a"}}}
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.0/8", "192.0.2.7/32")}
	web := endpointPolicy("web", policyOfRules(model.Ingress, local), openEgress, "10.0.0.1")
	c := New(Options{}, nil)
	p := c.Update(state(members, web).changes(nil))
	if len(p.Classes) != 0 || len(p.Addrs) != 1 || len(p.SetNames) != 0 {
		t.Errorf("classes %v, addresses %v, sets %v; want the pod's own address only", p.Classes, p.Addrs, p.SetNames)
	}
	if got := c.Address(policytest.Own4).Sets; !slices.Equal(got, []model.SetID{"a"}) {
		t.Errorf("the pod is in sets %v, want a", got)
	}
}

func TestHostAddressesAreMarkedFromBothSources(t *testing.T) {
	c := New(Options{}, nil)
	a := netip.MustParseAddr("192.0.2.1")
	flags := func(ch model.Changes) classes.AddrFlags {
		ch.InSync = true
		c.Update(ch)
		return c.Address(a).Entry.Flags
	}
	node := func(s *model.SetChange) model.Changes {
		return model.Changes{Sets: map[model.SetID]*model.SetChange{model.SetNodeAddrs: s}}
	}
	isHost := classes.AddrFlags(bpf.AddrHost)
	c.HostAddrs([]netip.Addr{a})
	if f := flags(model.Changes{}); f != isHost {
		t.Errorf("address of the dataplane: flags %v", f)
	}
	flags(node(&model.SetChange{Added: []netip.Prefix{host(a)}}))
	c.HostAddrs(nil)
	if f := flags(model.Changes{}); f != isHost {
		t.Errorf("address of the datastore only: flags %v", f)
	}
	if f := flags(node(&model.SetChange{Gone: true})); f != 0 {
		t.Errorf("address of nobody: flags %v", f)
	}
}

func TestAPolicyOfTooManyRulesLeavesWhatWasEnforced(t *testing.T) {
	good := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1")
	bad := *good
	bad.Ingress = policyOfRules(model.Ingress, make([]model.MatchRule, match.MaxEntries+1)...)
	for i := range bad.Ingress.Tiers[0].Policies[0].Rules {
		bad.Ingress.Tiers[0].Policies[0].Rules[i].Action = model.Deny
	}
	fresh := bad
	fresh.ID.Name, fresh.Iface, fresh.Addrs = "fresh", "califresh", policytest.Addrs("10.0.0.9")
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32")}

	c, k := New(Options{}, nil), newKernel()
	old := state(members, good)
	carryOut(k, c.Update(old.changes(nil)))
	now := state(members, &bad, &fresh)
	for ch, more := now.changes(old), true; more; ch = (model.Changes{InSync: true}) {
		p := c.Update(ch)
		carryOut(k, p)
		more = p.More
	}
	pkt := model.Packet{Src: netip.MustParseAddr("10.0.0.2"), Dst: policytest.Own4, Protocol: model.ProtoTCP}
	if v, bound, err := k.judge(good.ID, model.Ingress, pkt); !v.Allow || !bound || err != nil {
		t.Errorf("what was allowed is %+v now; bound: %v, error: %v", v, bound, err)
	}
	if _, ok := c.Endpoint(fresh.ID); ok {
		t.Error("an endpoint without a policy is bound")
	}
	for _, id := range []model.EndpointID{good.ID, fresh.ID} {
		if err := c.Failed()[EndpointDirection{id, model.Ingress}]; !errors.Is(err, match.ErrTooManyRules) {
			t.Errorf("%v: error %v, want %v", id, err, match.ErrTooManyRules)
		}
	}
	carryOut(k, c.Update(old.changes(now)))
	if f := c.Failed(); len(f) != 0 {
		t.Errorf("failed after the policy is small again: %v", f)
	}
	if err := k.garbage(); err != nil {
		t.Error(err)
	}
}

// restartCluster has names longer than the kernel's maps hold, and rules of both directions with the same text.
func restartCluster() *cluster {
	long := model.SetID("long " + strings.Repeat("x", 300))
	web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom(long), allowFrom("a"), model.MatchRule{
		Action: model.Allow, Source: model.Side{Nets: policytest.Prefixes("192.0.2.0/24")},
	}), policyOfRules(model.Egress), "10.0.0.1", "fd00::1")
	return state(map[model.SetID][]netip.Prefix{
		long: policytest.Prefixes("10.0.0.0/24", "10.0.0.2/32"), "a": policytest.Prefixes("10.0.0.2/32", "fd00::2/128"),
	}, web)
}

func TestARestartWithoutChangesWritesOnlyTheOwnersOfAddresses(t *testing.T) {
	for _, standIns := range []bool{false, true} {
		k, s := newKernel(), restartCluster()
		carryOut(k, New(Options{}, nil).Update(s.changes(nil)))
		p := New(Options{}, k.snapshot(standIns)).Update(s.changes(nil))
		if len(p.Addrs) != 2 || p.Addrs[0].Endpoint.Name != "web" {
			t.Errorf("addresses %v, want the two of web", p.Addrs)
		}
		p.Addrs = nil
		if !isEmpty(p) {
			t.Errorf("made-up ids %v: %+v", standIns, p)
		}
	}
}

func TestAnEndpointThatLeftDuringARestartIsUnbound(t *testing.T) {
	k := newKernel()
	carryOut(k, New(Options{}, nil).Update(restartCluster().changes(nil)))
	c := New(Options{}, k.snapshot(true))
	p := c.Update(model.Changes{InSync: true})
	if want := []model.EndpointID{model.WorkloadID("", "caliweb")}; !slices.Equal(p.Unbind, want) {
		t.Errorf("unbound %v, want %v", p.Unbind, want)
	}
	carryOut(k, p)
	if err := k.garbage(); err != nil {
		t.Error(err)
	}
	if len(k.addrs)+len(k.tables)+len(k.setNames)+len(k.ruleNames) != 0 || len(k.classes) != 2 {
		t.Errorf("left over: %+v", k)
	}
}

func TestATableThatCannotBeReadBackIsReplaced(t *testing.T) {
	k, s := newKernel(), restartCluster()
	carryOut(k, New(Options{}, nil).Update(s.changes(nil)))
	snap := k.snapshot(false)
	snap.Tables = slices.DeleteFunc(snap.Tables, func(t SnapshotTable) bool { return t.Direction == model.Ingress })
	p := New(Options{}, snap).Update(s.changes(nil))
	if len(p.Bind) != 1 || len(p.Tables) != 1 || len(p.DropTables) != 1 {
		t.Errorf("bound %v, new tables %v, dropped %v; want one of each", p.Bind, p.Tables, p.DropTables)
	}
	carryOut(k, p)
	if err := k.garbage(); err != nil {
		t.Error(err)
	}
}

func TestNamesThatDoNotFitAreCutButStayDistinct(t *testing.T) {
	a, b := NameText(strings.Repeat("x", 300)), NameText(strings.Repeat("x", 301))
	if len(a) != 255 || len(b) != 255 || a == b {
		t.Errorf("%d and %d bytes, equal: %v", len(a), len(b), a == b)
	}
	if s := strings.Repeat("y", 255); NameText(s) != s {
		t.Error("a name that fits was changed")
	}
}

func TestThePlanDoesNotDependOnMapOrder(t *testing.T) {
	plan := func() Plan {
		c := New(Options{}, nil)
		s := restartCluster()
		for i := range 10 {
			id := model.SetID(fmt.Sprint("s", i))
			s.sets[id] = policytest.Prefixes(fmt.Sprintf("10.%d.0.0/16", i%3), fmt.Sprintf("10.1.0.%d/32", i))
			e := endpointPolicy(fmt.Sprint("pod", i), policyOfRules(model.Ingress, allowFrom(id)), openEgress, fmt.Sprintf("10.1.0.%d", i))
			s.endpoints[e.ID] = e
		}
		return c.Update(s.changes(nil))
	}
	first := plan()
	for range 5 {
		if d := cmp.Diff(first, plan(), cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
			t.Fatal(d)
		}
	}
}
