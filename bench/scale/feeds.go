//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// thisNode is the node of local endpoints; all others are on another one.
const thisNode = "localhost"

// feed is the content of a datastore.
type feed struct {
	sink          func([]model.Update) // takes batches as they come about; nil: all is kept in updates
	updates       []model.Update       // what sink has not taken
	local, remote int                  // endpoints
}

func (f *feed) add(updates ...model.Update) {
	f.updates = append(f.updates, updates...)
	if f.sink != nil && len(f.updates) >= batch {
		f.sink(f.updates)
		f.updates = nil
	}
}

// addr returns the n-th address, counted from 10.0.0.1.
func addr(n int) netip.Addr {
	n += 0x0a000000
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// own returns a copy of the text, as a decoder makes one of every string it reads.
func own(text string) string { return strings.Clone(text) }

func allow(source *selector.Selector) model.Rule {
	return model.Rule{Action: model.Allow, Source: model.Entity{Selector: source}}
}

// markers are the labels of tagPolicies' endpoints: 31 of them, two of which occur twice.
func markers() []string {
	var list []string
	for i := range 29 {
		list = append(list, fmt.Sprintf("marker-label-%d", i))
	}
	return append(list, list[3], list[7])
}

// tagPolicies are policies by the labels of endpoints: each selects one of 29 labels and lets in five of them. The
// labels hardly ever repeat from endpoint to endpoint, and no string is shared. 100 namespaces.
func tagPolicies(sink func([]model.Update), local, remote, policies int) feed {
	m := markers()
	f := feed{sink: sink, local: local, remote: remote}
	for i := range policies {
		p := &model.Policy{Tier: model.TierDefault, Order: model.NoOrder, Selector: selector.Has(own(m[i%31])), AppliesIngress: true}
		for j := range 5 {
			p.Ingress = append(p.Ingress, allow(selector.Has(own(m[(i+j)%31]))))
			p.Ingress[j].Index = j
		}
		f.add(model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprintf("policy-%d", i)}, Policy: p})
	}
	for i := range 100 {
		ns := fmt.Sprintf("namespace-%d", i)
		f.add(model.ProfileUpdate{Name: ns, Profile: &model.Profile{Labels: map[string]string{"pcns.projectcalico.org/name": ns}}})
	}
	for i := range remote + local {
		seed := i + 1
		ep := &model.Endpoint{Node: "remotehost", Addrs: []netip.Addr{addr(seed)}, Profiles: []string{fmt.Sprintf("namespace-%d", i%100)}}
		if i >= remote {
			ep.Node, ep.Iface = thisNode, fmt.Sprintf("cali%d", i)
		}
		ep.Labels = map[string]string{own(m[seed%31]): own("true")}
		for _, n := range []int{10, 11, 20, 30, 40} {
			ep.Labels[fmt.Sprintf("one-in-%d", n)] = fmt.Sprintf("value-%d", seed%n)
		}
		f.add(model.EndpointUpdate{ID: model.WorkloadID(fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("wep-%d", seed)), Endpoint: ep})
	}
	return f
}

// isolated are customers of a pod each, that may talk to themselves: a namespace, a policy and a pod with 15 labels, five
// of them unique. 100 of the pods are local.
func isolated(sink func([]model.Update), customers int) feed {
	f := feed{sink: sink, local: 100, remote: customers - 100}
	dns := netip.MustParsePrefix("10.96.0.10/32")
	for i := range customers {
		ns := fmt.Sprintf("customer-%d", i)
		itself := func() *selector.Selector { return selector.Equal(own("pcns.projectcalico.org/name"), own(ns)) }
		udp := model.ProtoUDP
		f.add(model.PolicyUpdate{
			Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: ns, Name: "isolate"},
			Policy: &model.Policy{
				Tier: model.TierDefault, Order: model.NoOrder, Selector: itself(), AppliesIngress: true, AppliesEgress: true,
				Ingress: []model.Rule{allow(itself())},
				Egress: []model.Rule{
					{Action: model.Allow, Destination: model.Entity{Selector: itself()}},
					{Action: model.Allow, Index: 1, Protocol: &udp, Destination: model.Entity{Nets: []netip.Prefix{dns}, Ports: []model.PortRange{{Lo: 53, Hi: 53}}}},
				},
			},
		})
	}
	for i := range customers {
		f.add(model.ProfileUpdate{Name: fmt.Sprintf("kns.customer-%d", i), Profile: &model.Profile{Labels: map[string]string{
			"pcns.projectcalico.org/name": fmt.Sprintf("customer-%d", i), "pcns.namespace-id": fmt.Sprintf("id-%017d", i),
			"pcns.production": fmt.Sprint(i%2 == 0),
		}}})
	}
	pods := func(local bool) {
		for i := range customers {
			if (i%(customers/100) == 0) == local {
				f.add(customerPod(i, local))
			}
		}
	}
	pods(false)
	pods(true)
	return f
}

func customerPod(i int, local bool) model.EndpointUpdate {
	ns := fmt.Sprintf("customer-%d", i)
	ep := &model.Endpoint{Node: "remotehost", Addrs: []netip.Addr{addr(i + 1)}, Profiles: []string{"kns." + ns}, Labels: map[string]string{
		"managed-by": own("platform"), "tenant-id": fmt.Sprintf("tenant-%d", i%5000),
		"unique-a": fmt.Sprintf("%020d", i), "unique-b": fmt.Sprintf("%020d", i+1), "unique-c": fmt.Sprintf("%010d", i),
		"unique-d": fmt.Sprintf("%020d", i+2), "unique-e": fmt.Sprintf("%08d", i),
		"environment": fmt.Sprintf("env-%d", i%3), "tier": fmt.Sprintf("tier-%d", i%4), "region": fmt.Sprintf("region-%d", i%4),
		"team": fmt.Sprintf("team-%d", i%5),
	}}
	for b := range 4 {
		ep.Labels[fmt.Sprintf("binary-%d", b)] = fmt.Sprint(i>>b&1 == 0)
	}
	if local {
		ep.Node, ep.Iface = thisNode, fmt.Sprintf("cali%d", i)
	}
	return model.EndpointUpdate{ID: model.WorkloadID(ns, fmt.Sprintf("pod-%d", i)), Endpoint: ep}
}

// selectorPolicies are 100 policies of five rules by selector each, 500 sets in all, and pods of Deployments.
func selectorPolicies(sink func([]model.Update), local, remote int) feed {
	f := deployments(sink, local, remote, 0)
	for i := range 100 {
		p := &model.Policy{Tier: model.TierDefault, Order: float64(i), Selector: selector.All(), AppliesIngress: true}
		for j := range 5 {
			p.Ingress = append(p.Ingress, allow(selector.Equal("pod-template-hash", hash(5*i+j))))
			p.Ingress[j].Index = j
		}
		f.add(model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprintf("policy-%d", i)}, Policy: p})
	}
	return f
}
