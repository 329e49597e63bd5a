package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

func denyFrom(set model.SetID) model.MatchRule {
	return model.MatchRule{Action: model.Deny, Source: model.Side{In: []model.SetID{set}}}
}

// A packet that the policy before denies and the next one denies, too, is denied after each write of a restart that does not find the sets of
// some classes.
func TestWhatBothPoliciesDenyAnAddressBesideUnknownClassesStaysDenied(t *testing.T) {
	notFrom := model.MatchRule{Action: model.Allow, Source: model.Side{NotIn: []model.SetID{"outer"}}}
	for what, test := range map[string]struct {
		before, now []model.MatchRule
		outer       []netip.Prefix // the class of the first of them is unknown
	}{
		"a new entry inside an entry of a known class inside one of an unknown class": {
			[]model.MatchRule{denyFrom("outer"), denyFrom("inner")}, []model.MatchRule{denyFrom("bad"), allowFrom("inner")}, policytest.Prefixes("10.0.0.0/16")},
		"a new entry inside one of an unknown class": {
			[]model.MatchRule{denyFrom("outer")}, []model.MatchRule{denyFrom("bad"), allowFrom("outer")}, policytest.Prefixes("10.0.0.0/16")},
		"addresses of an unknown class that are to be in different sets": {
			[]model.MatchRule{denyFrom("outer")}, []model.MatchRule{denyFrom("bad"), allowFrom("outer")}, policytest.Prefixes("10.0.1.4/32", "10.0.1.5/32", "10.0.1.6/32")},
		"a set that only the policy before has": {
			[]model.MatchRule{notFrom}, []model.MatchRule{denyFrom("bad"), denyFrom("other")}, policytest.Prefixes("10.0.1.5/32")},
	} {
		members := map[model.SetID][]netip.Prefix{"outer": test.outer, "inner": policytest.Prefixes("10.0.1.0/24"), "bad": policytest.Prefixes("10.0.1.5/32"),
			"other": policytest.Prefixes("10.0.2.1/32")}
		web := func(rules []model.MatchRule) *model.EndpointPolicy {
			return endpointPolicy("web", policyOfRules(model.Ingress, rules...), openEgress, "10.1.0.1")
		}
		k := newKernel()
		carryOut(k, New(Options{}, nil).Update(state(members, web(test.before)).changes(nil)))
		unknown := k.addrs.Lookup(test.outer[0].Addr()).Class
		k.forgetClasses(func(class uint32) bool { return class == unknown })
		c := New(Options{}, k.snapshot(false))
		for plan, n := c.Update(state(members, web(test.now)).changes(nil)), 1; ; plan, n = c.Update(model.Changes{InSync: true}), n+1 {
			for _, w := range k.writes(plan) {
				w.do()
				pkt := model.Packet{Src: netip.MustParseAddr("10.0.1.5"), Dst: netip.MustParseAddr("10.1.0.1"), Protocol: model.ProtoTCP, DstPort: 80}
				if v, _, err := k.judge(model.WorkloadID("ns", "web"), model.Ingress, pkt); err != nil || v.Allow {
					t.Errorf("%s: plan %d, after %q: what both policies deny is judged %+v (error %v)", what, n, w.what, v, err)
				}
			}
			if !k.more(plan) {
				break
			}
		}
	}
}

// The next policy gets no table, so that an endpoint would keep the one of an earlier agent. Packets that the policy before denies and the next one
// denies, too, are denied all the same when addresses leave unknown classes.
func TestWhatBothPoliciesDenyIsDeniedThoughTheNextOneIsRefused(t *testing.T) {
	bad := policytest.Prefixes("10.0.1.5/32")
	members := map[model.SetID][]netip.Prefix{"outer": policytest.Prefixes("10.0.1.0/24"), "was bad": bad, "bad": bad}
	web := func(bad model.SetID, more ...model.MatchRule) *model.EndpointPolicy {
		return endpointPolicy("web", policyOfRules(model.Ingress, append(more, denyFrom(bad), allowFrom("outer"))...), openEgress, "10.1.0.1")
	}
	for what, test := range map[string]struct {
		options Options
		now     *model.EndpointPolicy
	}{
		"its table is refused": {Options{Confirm: true}, web("bad")},
		"it is over a limit":   {Options{Confirm: true, Budget: Budget{Direction: Cost{Sets: 2}}}, web("bad", denyFrom("other"))},
	} {
		k := newKernel()
		carryOut(k, New(Options{}, nil).Update(state(members, web("was bad")).changes(nil)))
		unknown := k.addrs.Lookup(bad[0].Addr()).Class
		k.forgetClasses(func(class uint32) bool { return class == unknown })
		k.refuses = true
		c := New(test.options, k.snapshot(false))
		plan := c.Update(state(members, test.now).changes(nil))
		failed := map[table.ID]error{}
		for _, table := range plan.Tables {
			failed[table.ID] = errRefused
		}
		plan = c.Withhold(plan, failed)
		for n := 1; n < 4; n++ {
			for _, w := range k.writes(plan) {
				w.do()
				pkt := model.Packet{Src: bad[0].Addr(), Dst: netip.MustParseAddr("10.1.0.1"), Protocol: model.ProtoTCP, DstPort: 80}
				if v, _, err := k.judge(model.WorkloadID("ns", "web"), model.Ingress, pkt); err != nil || v.Allow {
					t.Errorf("%s: plan %d, after %q: what both policies deny is judged %+v (error %v)", what, n, w.what, v, err)
				}
			}
			plan = c.Update(model.Changes{InSync: true})
		}
		if _, bound := c.Endpoint(model.WorkloadID("ns", "web")); bound || len(c.Failed()) != 1 {
			t.Errorf("%s: it is bound: %v; failures: %v", what, bound, c.Failed())
		}
	}
}

// Connections that the policy before allows and the next one allows, too, are judged by the next one's table as soon as an endpoint is bound to it.
func TestWhatBothPoliciesAllowAnAddressOfAnUnknownClassStaysAllowed(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{"a": policytest.Prefixes("10.0.0.2/32", "10.0.0.3/32"), "b": policytest.Prefixes("10.0.0.4/32")}
	before := state(members, endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.1.0.1"))
	k := newKernel()
	carryOut(k, New(Options{}, nil).Update(before.changes(nil)))
	k.forgetClasses(func(uint32) bool { return true })

	now := state(members, endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("b"), allowFrom("a")), openEgress, "10.1.0.1"))
	c := New(Options{}, k.snapshot(false))
	plan := c.Update(now.changes(nil))
	if len(plan.Bind) != 1 || !k.more(plan) {
		t.Fatalf("%d endpoints are bound, another plan follows: %v; the test tests nothing", len(plan.Bind), k.more(plan))
	}
	for _, w := range k.writes(plan) {
		w.do()
		pkt := model.Packet{Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.1.0.1"), Protocol: model.ProtoTCP, DstPort: 80}
		if v, _, err := k.judge(model.WorkloadID("ns", "web"), model.Ingress, pkt); err != nil || !v.Allow {
			t.Errorf("after %q: what both policies allow is judged %+v (error %v)", w.what, v, err)
		}
	}
	carryOut(k, c.Update(model.Changes{InSync: true}))
}
