package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// newSmallNode is a node with the address 192.0.2.1 and room for 510 classes in its marks.
func newSmallNode(t *testing.T) *fakeNode {
	n := &fakeNode{tables: iptables.NewFake(), sets: ipsets.NewFake(), flows: &fakeFlows{}, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, mask: 0xfff00000}
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	return n
}

// drain applies until no plan is left to be carried out; errors of the last Apply are returned.
func (n *fakeNode) drain(t *testing.T, updates ...model.Update) (err error) {
	t.Helper()
	for range 50 {
		if err = n.apply(updates...); n.state.plans.Done() && !n.unfinished() {
			return err
		}
		updates = nil
	}
	t.Fatal("the plans do not end:", err)
	return err
}

// nodeRule is the rule that gives masqueraded packets the class which the kernel's set has for the node's address.
func (n *fakeNode) nodeRule(t *testing.T) string {
	t.Helper()
	mark, ok := n.sets.Lookup("mgyA4-class", ipsets.Key{Prefix: single(n.addrs[0])})
	if !ok {
		t.Fatal("the node's address has no class")
	}
	return fmt.Sprintf("-A mgyA-node -j MARK --set-xmark %#x/%#x\n", mark.Value, mark.Mask)
}

func allowFrom(net string) model.Update {
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "from " + net}, Policy: &model.Policy{
		Tier: model.TierDefault, Order: 2, Selector: selector.Equal("app", "a"), AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix(net)}}}}}}
}

// crowd has more classes than marks have room for: endpoints elsewhere, each of which policy allows another port.
func crowd() (list []model.Update) {
	policy := &model.Policy{Tier: model.TierDefault, Order: 5, Selector: selector.Equal("app", "a"), AppliesIngress: true}
	for i := range 600 {
		label, port := fmt.Sprint(i), uint16(1000+i)
		list = append(list, endpointAt("crowd"+label, "", fmt.Sprintf("10.9.%d.%d", i/200, 1+i%200), map[string]string{"unique": label}))
		policy.Ingress = append(policy.Ingress, model.Rule{Action: model.Allow, Index: i, Protocol: new(model.ProtoTCP),
			Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}, Source: model.Entity{Selector: selector.Equal("unique", label)}})
	}
	return append(list, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "crowd"}, Policy: policy})
}

// A policy may give the node's own address a class that marks have no room for. Changes of others are enforced all the same. Masqueraded
// packets then have the class of the prefix around the address, as in the set.
func TestTheNodesAddressWithoutRoomInMarksHoldsUpNothing(t *testing.T) {
	n := newSmallNode(t)
	_ = n.drain(t, crowd()...)
	err := n.drain(t, allowFrom("192.0.2.0/24"))
	if err == nil || !n.state.addresses.unwritten.Missing(single(n.addrs[0])) {
		t.Fatalf("the node's address has an entry: the test tests nothing: %v", err)
	}
	_ = n.drain(t, endpointAt("victim", "cali8", "10.0.8.8", map[string]string{"app": "b"}))
	if c, why := n.condition("victim"); c != dataplane.Enforced {
		t.Errorf("an endpoint of another tenant is %v: %s", c, why)
	}
	if saved, want := n.tables.Save(iptables.V4, "mangle"), n.nodeRule(t); !strings.Contains(saved, want) {
		t.Errorf("no rule %s", want)
	}
}

// nodeWithALateClass is a node whose address has a class that its chains do not have yet: the entry was refused. The next Apply writes both.
func nodeWithALateClass(t *testing.T) *fakeNode {
	t.Helper()
	n := &fakeNode{tables: iptables.NewFake(), sets: ipsets.NewFake(), flows: &fakeFlows{}, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	n.sets.Refuse = func(set string, c ipsets.Change) error {
		if set == "mgyA4-class" && c.Key.Prefix == single(n.addrs[0]) && !c.Remove {
			return errors.New("no memory")
		}
		return nil
	}
	if err := n.drain(t, allowFrom("192.0.2.1/32")); err == nil {
		t.Error("the refusal is not reported")
	}
	n.sets.Refuse = nil
	n.state.refusals.Retry.Room()
	return n
}

// An entry that is refused, and written at last, changes the class of masqueraded packets without a plan.
func TestTheClassOfTheNodesAddressIsFollowedWhenItIsWrittenLater(t *testing.T) {
	n := nodeWithALateClass(t)
	without := n.nodeRule(t)
	if saved := n.tables.Save(iptables.V4, "mangle"); !strings.Contains(saved, without) {
		t.Errorf("the entry is refused: no rule %s", without)
	}
	generation := n.state.static.generation.number
	n.mustApply(t)
	want := n.nodeRule(t)
	if want == without {
		t.Fatal("the class is the same: the test tests nothing")
	}
	if saved := n.tables.Save(iptables.V4, "mangle"); !strings.Contains(saved, want) {
		t.Errorf("the entry is written: no rule %s", want)
	}
	if n.state.static.generation.number == generation {
		t.Error("live flows are not judged again")
	}
}
