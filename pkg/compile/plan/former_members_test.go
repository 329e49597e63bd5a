package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// A pod comes, and a set loses an address, while an agent starts that does not know the sets of the address's class. A table of the agent before
// has a row for it, which is right for the pods that it judges until the address moves. The pod that comes is judged by it only then.
func TestAPodThatComesIsNotJudgedByFormerMembersOfASet(t *testing.T) {
	policy := policyOfRules(model.Ingress, allowFrom("s"))
	old := endpointPolicy("old", policy, openEgress, "10.0.0.1")
	fresh := endpointPolicy("fresh", policy, openEgress, "10.0.0.2")
	was := map[model.SetID][]netip.Prefix{"s": policytest.Prefixes("10.0.0.9/32")}
	is := map[model.SetID][]netip.Prefix{"s": policytest.Prefixes("10.0.0.8/32")}
	was["s"] = append(was["s"], is["s"]...) // no new class, for which the table would be made again
	k, c := newKernel(), New(Options{}, nil)
	carryOut(k, c.Update(state(was, old).changes(nil)))
	c.Close()
	k.forgetClasses(func(uint32) bool { return true })
	c = New(Options{}, k.snapshot(false))
	defer c.Close()
	allows := func(src string) (allow, bound bool) {
		v, bound, err := k.judge(fresh.ID, model.Ingress,
			model.Packet{Src: netip.MustParseAddr(src), Dst: fresh.Addrs[0], Protocol: 6, DstPort: 80})
		if err != nil {
			t.Fatal(err)
		}
		return v.Allow, bound
	}
	plan := c.Update(state(is, old, fresh).changes(nil))
	for plans := 1; ; plans++ {
		for _, w := range k.writes(plan) {
			w.do()
			if allow, bound := allows("10.0.0.9"); bound && allow {
				t.Errorf("plan %d, after %s: a former member is allowed", plans, w.what)
			}
		}
		if !k.more(plan) || plans > 10 {
			break
		}
		plan = c.Update(model.Changes{InSync: true})
	}
	if allow, bound := allows("10.0.0.8"); !bound || !allow {
		t.Errorf("in the end the pod is bound %t, and a member is allowed %t", bound, allow)
	}
}
