package calc

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// The agent's loop waits for the question, and not for rules to be unpacked. Before, a pod with 1,750,000 rules kept it for 0.55 s.
func TestRulesAreUnpackedWhereNothingWaitsForThem(t *testing.T) {
	const policies, rules, less = 20, 5000, 20
	g := New(thisNode)
	g.Apply([]model.Update{pod("shop/a", "10.0.0.1"), model.InSync{}})
	for i := range policies {
		list := make([]model.Rule, rules)
		for k := range list {
			addr := netip.AddrFrom4([4]byte{10, byte(1 + i), byte(k >> 8), byte(k)})
			list[k] = model.Rule{Action: model.Allow, Index: k, Source: model.Entity{Nets: []netip.Prefix{netip.PrefixFrom(addr, 32)}}}
		}
		g.Apply([]model.Update{policyOf(fmt.Sprint("p", i), "all()", list...)})
	}
	g.Flush()
	ends := []model.EndpointID{id("shop/a")}
	ask := testutil.LeastCPUTime(t, func() { g.Around(ends, nil) })
	sample := testutil.LeastCPUTime(t, func() { g.Sample() })
	part := g.Around(ends, nil)
	unpack := testutil.LeastCPUTime(t, func() {
		again := Part{updates: part.updates, packed: part.packed}
		again.Objects()
	})
	t.Logf("%d rules: %s for the question, %s to unpack them; %s for a sample", policies*rules, ask, unpack, sample)
	if less*ask > unpack {
		t.Errorf("the question takes %s, and to unpack the rules %s", ask, unpack)
	}
}

// Before the datastore is complete, rules of profiles are not packed yet. A part has them as they came.
func TestAPartHasRulesThatAreNotPacked(t *testing.T) {
	g := New(thisNode)
	g.Apply([]model.Update{pod("shop/a", "10.0.0.1", profiles("open")),
		model.ProfileUpdate{Name: "open", Profile: &model.Profile{Ingress: []model.Rule{fromSelector("app == 'web'")}}}})
	g.Flush()
	n := 0
	for _, u := range g.Around([]model.EndpointID{id("shop/a")}, nil).Objects() {
		if p, ok := u.(model.ProfileUpdate); ok {
			n += len(p.Profile.Ingress)
		}
	}
	if n != 1 {
		t.Errorf("%d rules, want the one that has arrived", n)
	}
}

// What a part has does not change with the graph.
func TestAPartStaysAsItWas(t *testing.T) {
	g, dp := New(thisNode), newDataplane()
	flushed(t, g, dp, pod("shop/a", "10.0.0.1"), policyOf("p", "all()", fromSelector("app == 'old'"), fromSelector("app == 'second'")), model.InSync{})
	part := g.Around([]model.EndpointID{id("shop/a")}, nil)
	flushed(t, g, dp, policyOf("p", "all()", fromSelector("app == 'now'")))
	flushed(t, g, dp, model.Absent(policyOf("p", "all()")))
	n := 0
	for _, u := range part.Objects() {
		if p, ok := u.(model.PolicyUpdate); ok {
			n += len(p.Policy.Ingress)
		}
	}
	if n != 2 {
		t.Errorf("%d rules, want the 2 of before", n)
	}
}
