package iptables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

const (
	// portProbed is the port of a tenant's pod whose verdict its policies change all the time.
	portProbed = 83
	// tierFront comes before the default tier, and passes on what none of its policies decides.
	tierFront = "front"
)

// A rule's source is its peer by label, by prefix or by a network set.
const (
	byLabel = iota
	byPrefix
	bySet
)

// tenantPolicy is what the datastore has of one tenant: three policies, a network set, and the label of the pod that connects to it.
// Policy a has a rule for that pod and the probed port, b one for the probed port, and e denies or allows that pod's egress to it.
type tenantPolicy struct {
	friend    bool // the peer has the label that the rule of a selects
	listed    bool // the peer is in the network set
	prefixed  bool // the peer is in the prefixes of the rule of a
	ported    bool // the rule of a has the probed port; otherwise, only another one
	absent    bool // a does not exist
	front     bool // a is in the tier before the default one
	late      bool // in the default tier, a comes after b
	source    int  // how the rule of a names the peer
	a, b, e   model.Action
	elsewhere uint16 // makes ports and prefixes of a that have nothing to do with the probe; another one each time they come
	strangers uint16 // the same of the network set
}

// neighbours are the policies to which a change of one object leads. The ports and prefixes that come with it are drawn from r.
func (p tenantPolicy) neighbours(r *rand.Rand) (list []tenantPolicy) {
	add := func(change func(p *tenantPolicy)) {
		next := p
		change(&next)
		list = append(list, next)
	}
	elsewhere := uint16(r.IntN(1 << 12))
	add(func(p *tenantPolicy) { p.friend = !p.friend })
	add(func(p *tenantPolicy) { p.listed, p.strangers = !p.listed, elsewhere })
	add(func(p *tenantPolicy) { p.prefixed, p.elsewhere = !p.prefixed, elsewhere })
	add(func(p *tenantPolicy) { p.ported, p.elsewhere = !p.ported, elsewhere })
	add(func(p *tenantPolicy) { p.absent = !p.absent })
	add(func(p *tenantPolicy) { p.front = !p.front })
	add(func(p *tenantPolicy) { p.late = !p.late })
	for source := range 3 {
		add(func(p *tenantPolicy) { p.source = source })
	}
	for _, action := range []model.Action{model.Allow, model.Deny, model.Pass} {
		add(func(p *tenantPolicy) { p.a = action })
	}
	for _, action := range []model.Action{model.Allow, model.Deny} {
		add(func(p *tenantPolicy) { p.b = action })
		add(func(p *tenantPolicy) { p.e = action })
	}
	return list
}

// label is the value that a label has for one tenant.
func label(i int) string { return fmt.Sprint("tenant-", i) }

// labels are those of the pod that connects to the pod of tenant i.
func (p tenantPolicy) labels(i int) map[string]string {
	labels := map[string]string{"client": label(i)}
	if p.friend {
		labels["friend"] = label(i)
	}
	return labels
}

// updates are the objects of tenant i but for its pods. The peer has these addresses.
func (p tenantPolicy) updates(i int, peer []netip.Addr) []model.Update {
	var listed []netip.Addr
	if p.listed {
		listed = peer
	}
	set := model.NetworkSetUpdate{ID: model.NetworkSetID{Name: label(i)},
		Set: &model.NetworkSet{Nets: nets(listed, p.strangers), Labels: map[string]string{"listed": label(i)}}}
	server, client := selector.Equal("server", label(i)), selector.Equal("client", label(i))
	open := []model.Rule{portRule(model.Allow, model.ProtoTCP, portOpen), portRule(model.Allow, model.ProtoUDP, portOpen)}
	a := &model.Policy{Tier: model.TierDefault, Order: 10, Selector: server, AppliesIngress: true, Ingress: append(open[:2:2], p.rule(i, peer))}
	if p.front {
		a.Tier = tierFront
	}
	if p.late {
		a.Order = 30
	}
	if p.absent {
		a = nil
	}
	b := &model.Policy{Tier: model.TierDefault, Order: 20, Selector: server, AppliesIngress: true, Ingress: append(open[:2:2], portRule(p.b, model.ProtoTCP, portProbed))}
	probe := portRule(p.e, model.ProtoTCP, portProbed)
	probe.Destination.Selector = server
	e := &model.Policy{Tier: model.TierDefault, Order: 20, Selector: client, AppliesEgress: true, Egress: []model.Rule{probe, {Action: model.Allow}}}
	list := []model.Update{set}
	for name, policy := range map[string]*model.Policy{"a": a, "b": b, "e": e} {
		list = append(list, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name + "-" + label(i)}, Policy: policy})
	}
	return list
}

func portRule(action model.Action, protocol uint8, port uint16) model.Rule {
	return model.Rule{Action: action, Protocol: &protocol, Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}}
}

// rule is the one of a for the peer.
func (p tenantPolicy) rule(i int, peer []netip.Addr) model.Rule {
	rule := portRule(p.a, model.ProtoTCP, portProbed)
	if !p.ported {
		rule = portRule(p.a, model.ProtoTCP, 1000+p.elsewhere)
	}
	switch p.source {
	case byLabel:
		rule.Source.Selector = selector.Equal("friend", label(i))
	case byPrefix:
		var prefixed []netip.Addr
		if p.prefixed {
			prefixed = peer
		}
		rule.Source.Nets = nets(prefixed, p.elsewhere)
	case bySet:
		rule.Source.Selector = selector.Equal("listed", label(i))
	}
	return rule
}

// nets are these addresses, and prefixes of no pod.
func nets(with []netip.Addr, elsewhere uint16) (list []netip.Prefix) {
	for _, a := range with {
		list = append(list, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(elsewhere >> 4), byte(elsewhere << 4)}), 28),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x99, 14: byte(elsewhere >> 8), 15: byte(elsewhere)}), 128))
}
