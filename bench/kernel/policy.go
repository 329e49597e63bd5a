//go:build linux

package kernel

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// nets is the number of different prefixes rules speak of.
const nets = 300

// stranger is a remote address of the last rule of every policy.
var stranger = netip.MustParseAddr("20.255.0.9")

// deniedPort is what the last rule denies the stranger.
const deniedPort = 60000

// rules are n rules of which only the last, which denies, fits a packet of the stranger to deniedPort. The others come
// close: the right protocol and another prefix and port.
func rules(n int) []model.Rule {
	tcp := model.ProtoTCP
	list := make([]model.Rule, n)
	for i := range list {
		k, port := i%nets, uint16(1000+i/nets)
		list[i] = model.Rule{Action: model.Allow, Index: i, Protocol: &tcp,
			Source:      model.Entity{Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(k >> 8), byte(k), 0}), 24)}},
			Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}}
	}
	end := &list[n-1]
	end.Action = model.Deny
	end.Source.Nets = []netip.Prefix{netip.PrefixFrom(stranger, 24).Masked()}
	end.Destination.Ports = []model.PortRange{{Lo: deniedPort, Hi: deniedPort}}
	return list
}

// wideRules are n rules, each of a prefix and a port of its own, so that a table of them has n rows and n columns. Only the
// last one fits a packet of the stranger to deniedPort.
func wideRules(n int) []model.Rule {
	list := rules(n)
	for i := range n - 1 {
		list[i].Source.Nets = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)}
		list[i].Destination.Ports = []model.PortRange{{Lo: uint16(1000 + i), Hi: uint16(1000 + i)}}
	}
	return list
}

// policyKey names the policy of a pod.
func policyKey(pod string) model.PolicyKey {
	return model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "bench", Name: pod}
}

// policyFor is an ingress policy for one pod, whose egress is free.
func policyFor(pod string, ingress []model.Rule) model.Update {
	return model.PolicyUpdate{Key: policyKey(pod), Policy: &model.Policy{
		Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", pod), AppliesIngress: true, Ingress: ingress,
		AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow}},
	}}
}

// widePod is the pod of the wide policy.
const widePod = "wide"

func podName(rules int) string { return fmt.Sprintf("rules%d", rules) }

func podAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 65, byte(i >> 8), byte(i + 2)}) }
