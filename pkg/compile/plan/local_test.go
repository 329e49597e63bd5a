package plan

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// denyTo is a policy that a pod with addresses inside and outside of the prefix would need two tables for.
func denyTo(prefix string) *model.DirectionPolicy {
	return policyOfRules(model.Ingress,
		model.MatchRule{Action: model.Deny, Destination: model.Side{Nets: policytest.Prefixes(prefix)}},
		model.MatchRule{Action: model.Allow})
}

func TestAnEndpointWhoseAddressesArePolicedDifferentlyIsClosed(t *testing.T) {
	for _, test := range []struct {
		name   string
		policy *model.DirectionPolicy
		own    []string
		sets   map[model.SetID][]netip.Prefix
		closed bool
	}{
		{name: "one address", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.0.1"}},
		{name: "both outside", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.0.1", "10.0.1.1"}},
		{name: "both inside", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.5.1", "10.0.5.2"}},
		{name: "one of each", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.0.1", "10.0.5.1"}, closed: true},
		{name: "one of each, the other first", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.5.1", "10.0.0.1"}, closed: true},
		{name: "one of each family", policy: denyTo("10.0.5.0/24"), own: []string{"10.0.5.1", "fd00::1"}},
		{name: "IPv6", policy: denyTo("fd00:5::/64"), own: []string{"10.0.5.1", "fd00::1", "fd00:5::1"}, closed: true},
		{name: "a set of the local side", own: []string{"10.0.0.1", "10.0.5.1"}, closed: true,
			sets: map[model.SetID][]netip.Prefix{"mine": policytest.Prefixes("10.0.5.1/32")},
			policy: policyOfRules(model.Ingress, model.MatchRule{Action: model.Allow,
				Destination: model.Side{In: []model.SetID{"mine"}}})},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, k := New(Options{}, nil), newKernel()
			e := endpointPolicy("web", test.policy, openEgress, test.own...)
			carryOut(k, c.Update(state(test.sets, e).changes(nil)))
			err := c.Failed()[EndpointDirection{e.ID, model.Ingress}]
			_, bound := c.Endpoint(e.ID)
			if errors.Is(err, ErrOwnAddresses) != test.closed || (err != nil) != test.closed || bound == test.closed {
				t.Errorf("error %v, bound: %v", err, bound)
			}
			if err := k.garbage(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAnEndpointThatGetsAnAddressPolicedDifferentlyIsClosedUntilItGoes(t *testing.T) {
	one := endpointPolicy("web", denyTo("10.0.5.0/24"), openEgress, "10.0.0.1")
	both := *one
	both.Addrs = policytest.Addrs("10.0.0.1", "10.0.5.1")
	c, k := New(Options{}, nil), newKernel()
	before, after := state(nil, one), state(nil, &both)
	carryOut(k, c.Update(before.changes(nil)))
	plan := c.Update(after.changes(before))
	carryOut(k, plan)
	if diff := cmp.Diff([]model.EndpointID{one.ID}, plan.Unbind); diff != "" {
		t.Errorf("unbound: %s", diff)
	}
	carryOut(k, c.Update(before.changes(after)))
	if _, bound := c.Endpoint(one.ID); !bound || len(c.Failed()) != 0 {
		t.Errorf("bound: %v, failed: %v", bound, c.Failed())
	}
	if err := k.garbage(); err != nil {
		t.Error(err)
	}
}
