package iptables

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// statusOf returns the status of an endpoint.
func (n *fakeNode) statusOf(t *testing.T, name string) dataplane.EndpointStatus {
	t.Helper()
	for _, e := range n.Endpoints() {
		if e.ID == model.WorkloadID("t", name) {
			return e
		}
	}
	t.Fatalf("endpoint %s has no status", name)
	return dataplane.EndpointStatus{}
}

// wantBehind checks of which endpoints it is said that their newest policy is not in force, and why; empty: of none.
func (n *fakeNode) wantBehind(t *testing.T, when, names, why string) {
	t.Helper()
	missing := strings.Fields(names)
	for _, e := range n.Endpoints() {
		said, behind := cmp.Or(e.NotInForce, e.Misjudged.Text()), strings.Contains(" "+names+" ", " "+e.ID.Name+" ")
		if behind != strings.Contains(said, "its newest policy is not in force yet") || behind != strings.Contains(said, why) {
			t.Errorf("%s: of %s is said %q, behind are to be: %q", when, e.ID.Name, said, names)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == e.ID.Name })
	}
	if len(missing) > 0 {
		t.Errorf("%s: %q are not listed, behind are to be: %q", when, missing, names)
	}
}

// policyOn is a policy that allows some ports to the endpoints with a label.
func policyOn(app string, staged bool, ports ...uint16) model.PolicyUpdate {
	tcp, kind := model.ProtoTCP, model.KindGlobalNetworkPolicy
	if staged {
		kind = model.KindStagedNetworkPolicy
	}
	rule := model.Rule{Action: model.Allow, Protocol: &tcp}
	for _, p := range ports {
		rule.Destination.Ports = append(rule.Destination.Ports, model.PortRange{Lo: p, Hi: p})
	}
	key := model.PolicyKey{Kind: kind, Name: "only-" + app}
	if staged {
		key.Namespace = "t"
	}
	return model.PolicyUpdate{Key: key, Policy: &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("app", app), AppliesIngress: true,
		Staged: staged, Ingress: []model.Rule{rule}}}
}

// While a transaction cannot be written, that is said of the endpoints which it, or a change behind it, concerns, and of no others.
func TestOnlyEndpointsWhosePolicyWaitsForTheLockAreSaidToWait(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(narrow.updates(), endpointAt("b", "cali7", "10.0.7.1", map[string]string{"app": "b"}),
		endpointAt("c", "cali6", "10.0.6.1", map[string]string{"app": "c"}), policyOn("b", false, 80), policyOn("c", false, 80))...)
	n.wantBehind(t, "at first", "", "its newest policy")
	n.tables.Lock(true)
	next := narrow
	next.ports = []uint16{443}
	apply := func(updates ...model.Update) {
		t.Helper()
		err := n.apply(updates...)
		if _, locked := errors.AsType[*iptables.LockedError](err); !locked || errors.Is(err, dataplane.ErrStuck) {
			t.Errorf("while the lock is held Apply says %v; want that it is, and that another attempt helps", err)
		}
	}
	apply(next.updates()...)
	n.wantBehind(t, "a has another policy", "a a0 a1", "lock")
	apply(policyOn("b", false, 443), endpointAt("new", "cali8", "10.0.8.1", map[string]string{"app": "c"}))
	n.wantBehind(t, "b, too, and new has come", "a a0 a1 b new", "lock")
	apply(policyOn("c", true, 22))
	if !n.statusOf(t, "c").StagedPending || n.statusOf(t, "b").StagedPending {
		t.Errorf("a staged policy of c waits: %+v, b: %+v", n.statusOf(t, "c"), n.statusOf(t, "b"))
	}
	n.tables.Lock(false)
	n.mustApply(t)
	n.mustApply(t)
	n.wantBehind(t, "the lock is free", "", "its newest policy")
	for _, name := range []string{"a", "b", "c", "new"} {
		if s := n.statusOf(t, name); s.Condition != dataplane.Enforced || s.StagedPending {
			t.Errorf("the lock is free: %+v", s)
		}
	}
}

// A member that joins a set is of concern to the endpoints whose rules refer to it: while its entry cannot be written for want of
// memory, and while it is refused for want of room.
func TestOnlyEndpointsWhoseRulesReferToASetWaitForItsMembers(t *testing.T) {
	for what, why := range map[string]error{"no memory": unix.ENOMEM, "no room": ipsets.ErrFull} {
		n := newFakeNode(t)
		first := narrow
		first.role = "nobody"
		n.mustApply(t, append(first.updates(), endpointAt("b", "cali7", "10.0.7.1", map[string]string{"app": "b"}), policyOn("b", false, 80))...)
		n.sets.Refuse = func(set string, c ipsets.Change) error {
			if c.Key.Prefix.Addr().String() == "10.0.0.1" && !c.Remove {
				return why
			}
			return nil
		}
		if err := n.apply(narrow.updates()...); !errors.Is(err, why) {
			t.Fatalf("%s: Apply says %v", what, err)
		}
		n.wantBehind(t, what, "a a0 a1", why.Error())
		n.sets.Refuse = nil
		n.state.refusals.Retry.Room()
		n.mustApply(t)
		n.mustApply(t)
		n.wantBehind(t, what+", then written", "", "its newest policy")
	}
}

func TestTheStepsInWhichAPlanComesIntoForceAreInOrder(t *testing.T) {
	if steps.Moved < 1 || steps.Bound <= steps.Moved || steps.Rejudged < steps.Bound || steps.All < steps.Rejudged {
		t.Errorf("%+v", steps)
	}
}
