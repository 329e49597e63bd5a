package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

func denyFrom(set model.SetID) model.MatchRule {
	return model.MatchRule{Action: model.Deny, Source: model.Side{In: []model.SetID{set}}}
}

// An address that gets an entry inside a prefix whose class is known, which is inside one whose class is not, has its new sets before a new
// policy asks for them.
func TestANewEntryInsideAKnownClassIsNotPutOffForAnUnknownOneAround(t *testing.T) {
	members := map[model.SetID][]netip.Prefix{
		"outer": policytest.Prefixes("10.0.0.0/16"), "inner": policytest.Prefixes("10.0.1.0/24"), "bad": policytest.Prefixes("10.0.1.5/32"),
	}
	before := state(members, endpointPolicy("web", policyOfRules(model.Ingress, denyFrom("outer"), denyFrom("inner")), openEgress, "10.1.0.1"))
	k := newKernel()
	carryOut(k, New(Options{}, nil).Update(before.changes(nil)))
	outer := k.addrs.Lookup(netip.MustParseAddr("10.0.0.9")).Class
	k.forgetClasses(func(class uint32) bool { return class == outer })

	now := state(members, endpointPolicy("web", policyOfRules(model.Ingress, denyFrom("bad"), allowFrom("inner")), openEgress, "10.1.0.1"))
	c := New(Options{}, k.snapshot(false))
	for plan, n := c.Update(now.changes(nil)), 1; ; plan, n = c.Update(model.Changes{InSync: true}), n+1 {
		for _, w := range k.writes(plan) {
			w.do()
			pkt := model.Packet{Src: netip.MustParseAddr("10.0.1.5"), Dst: netip.MustParseAddr("10.1.0.1"), Protocol: model.ProtoTCP, DstPort: 80}
			v, _, err := k.judge(model.WorkloadID("ns", "web"), model.Ingress, pkt)
			if err != nil || v.Allow {
				t.Errorf("plan %d, after %q: what both policies deny is judged %+v (error %v)", n, w.what, v, err)
			}
		}
		if !k.more(plan) {
			break
		}
	}
}
