package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// manyAddrs are n addresses of 10.64.0.0/10.
func manyAddrs(n int) []netip.Prefix {
	all := make([]netip.Prefix, n)
	for i := range all {
		all[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>16), byte(i >> 8), byte(i)}), 32)
	}
	return all
}

// A set with very many members comes and goes in parts: no plan writes more than a few thousand of them, and none with a change of others writes
// any. The endpoint has its former policy until all have joined. Before, one plan had all of them, twice.
func TestASetOfVeryManyMembersComesAndGoesInParts(t *testing.T) {
	const members, most = 20_000, 2100
	huge := manyAddrs(members)
	from := func(sets map[model.SetID][]netip.Prefix, web, other model.MatchRule) *cluster {
		return state(sets, endpointPolicy("web", policyOfRules(model.Ingress, web), openEgress, "10.0.0.1"),
			endpointPolicy("other", policyOfRules(model.Ingress, other), openEgress, "10.0.0.9"))
	}
	web, other := model.WorkloadID("ns", "web"), model.WorkloadID("ns", "other")
	small := policytest.Prefixes("10.0.0.2/32")
	states := []*cluster{
		from(map[model.SetID][]netip.Prefix{"small": small}, allowFrom("small"), allowFrom("small")),
		from(map[model.SetID][]netip.Prefix{"small": small, "huge": huge}, allowFrom("huge"), allowFrom("small")),
		from(map[model.SetID][]netip.Prefix{"small": small, "huge": huge}, allowFrom("small"), allowFrom("small")),
	}
	c, k := New(Options{Confirm: true}, nil), newKernel()
	carryOut(k, c.Update(states[0].changes(nil)))
	judges := func(id model.EndpointID, src string, want bool) {
		t.Helper()
		v, _, err := k.judge(id, model.Ingress, model.Packet{Src: netip.MustParseAddr(src), Dst: states[0].endpoints[id].Addrs[0], Protocol: 6, DstPort: 80})
		if err != nil || v.Allow != want {
			t.Errorf("%s to %s allowed: %v, want %v (%v)", src, id, v.Allow, want, err)
		}
	}
	last, plans := huge[members-1].Addr().String(), 0
	for i, now := range states[1:] {
		p := c.Update(now.changes(states[i]))
		if n := len(p.Addrs) + len(p.LateAddrs); n > 100 {
			t.Errorf("state %d: the plan of the change writes %d addresses", i+1, n)
		}
		for carryOut(k, p); p.More || p.FollowUp; carryOut(k, p) {
			if i == 0 && c.Waiting()[web] {
				judges(web, "10.0.0.2", true)
				judges(web, huge[0].Addr().String(), false)
			}
			if p = c.Update(model.Changes{InSync: true}); len(p.Addrs) > most || len(p.LateAddrs) > most {
				t.Errorf("state %d: a plan writes %d and %d addresses", i+1, len(p.Addrs), len(p.LateAddrs))
			}
			plans++
		}
		judges(web, last, i == 0)
		judges(web, "10.0.0.2", i == 1)
		judges(other, "10.0.0.2", true)
	}
	if plans < 2*members/most {
		t.Errorf("%d plans: the test tests nothing", plans)
	}
	if err := k.garbage(); err != nil {
		t.Error(err)
	}
	if n := c.classes.Size(c.sets.Number("huge")); n != 0 {
		t.Errorf("%d members are left", n)
	}
}

// A set that is defined again while it is still to be looked at has the members that wait.
func TestMembersThatWaitOutlastTheEndOfTheSetBefore(t *testing.T) {
	sets := func(member string) map[model.SetID][]netip.Prefix {
		return map[model.SetID][]netip.Prefix{"a": policytest.Prefixes(member), "b": policytest.Prefixes("10.9.0.1/32")}
	}
	web := endpointPolicy("web", policyOfRules(model.Ingress, allowFrom("a")), openEgress, "10.0.0.1")
	other := endpointPolicy("other", policyOfRules(model.Ingress, allowFrom("b")), openEgress, "10.0.0.11")
	states := []*cluster{state(sets("10.0.0.2/32"), web), state(sets("10.0.0.2/32"), other), state(sets("fd00::2/128"), web, other)}
	c, k := New(Options{Limits: table.Limits{Open: 1}}, nil), newKernel()
	c.sets.atOnce = 0
	var before *cluster
	for i, now := range states {
		p := c.Update(now.changes(before))
		for carryOut(k, p); i != 1 && (p.More || p.FollowUp); carryOut(k, p) {
			p = c.Update(model.Changes{InSync: true})
		}
		before = now
	}
	if v := c.Address(netip.MustParseAddr("fd00::2")); len(v.Sets) != 1 || len(v.Class.Sets) != 1 {
		t.Errorf("%+v", v)
	}
}
