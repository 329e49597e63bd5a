//go:build linux

package changes

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/bench/linear"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// change is one kind of change.
type change struct {
	what  string
	joins bool // a pod elsewhere gets the labels of a set; else a rule of one policy is another
	net   bool // the rule's prefix, and not its port
}

var kinds = []change{
	{what: "another port in one policy"},
	{what: "another prefix in one policy", net: true},
	{what: "a pod elsewhere joins a group", joins: true},
}

// groups is how many sets of pods there are elsewhere. Each has five members.
const groups = 20

const nodeName = "node"

// changing is the endpoint whose policy changes.
const changing = 7

func ifaceOf(i int) string     { return fmt.Sprintf("cali%d", i) }
func addrOf(i int) netip.Addr  { return netip.AddrFrom4([4]byte{10, 65, byte(i >> 8), byte(i)}) }
func appOf(i int) string       { return fmt.Sprintf("app%d", i) }
func namespaceOf(i int) string { return fmt.Sprintf("ns%d", i/20) }
func groupOf(i int) string     { return fmt.Sprintf("group%d", i%groups) }
func portAt(turn int) uint16   { return uint16(20000 + turn) }
func netAt(turn int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(turn), 0}), 24)
}

// load is what a node enforces: so many policies of ingress, each of one pod and with so many rules. Egress is free.
type load struct{ slots, rules int }

func (l load) String() string {
	if l.rules == 1 {
		return fmt.Sprintf("%d policies of 1 rule", l.slots)
	}
	return fmt.Sprintf("%d policies of %d rules", l.slots, l.rules)
}

// mostRules is how many rules a policy may have here.
const mostRules = 5

// world are the pods, the policies and what else there is.
func (l load) world() []model.Update {
	var list []model.Update
	for i := range l.slots {
		list = append(list, model.EndpointUpdate{ID: model.WorkloadID(namespaceOf(i), appOf(i)), Endpoint: &model.Endpoint{
			Node: nodeName, Iface: ifaceOf(i), Addrs: []netip.Addr{addrOf(i)}, Labels: map[string]string{"app": appOf(i)}}}, l.policy(i, firstPort, netAt(0)))
	}
	for i := range groups {
		for k := range 5 {
			list = append(list, member(i, k))
		}
	}
	return append(list, model.InSync{})
}

// member is a pod elsewhere.
func member(group, k int) model.Update {
	return model.EndpointUpdate{ID: model.WorkloadID(groupOf(group), fmt.Sprint(k)), Endpoint: &model.Endpoint{Node: "elsewhere",
		Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 70 + byte(group), byte(k >> 8), byte(k)})}, Labels: map[string]string{"group": groupOf(group)}}}
}

// firstPort is what the first rule allows before it is changed.
const firstPort = 8080

// policy is the first of these rules: a port from a group of pods, one from a prefix, one from another group, and two from everywhere.
func (l load) policy(i int, port uint16, net netip.Prefix) model.Update {
	tcp, udp := model.ProtoTCP, model.ProtoUDP
	rules := []model.Rule{
		{Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("group", groupOf(i))}, Destination: ports(port)},
		{Protocol: &tcp, Source: model.Entity{Nets: []netip.Prefix{net}}, Destination: ports(9090)},
		{Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("group", groupOf(i+1))}, Destination: ports(uint16(6000 + i))},
		{Protocol: &tcp, Destination: ports(443)},
		{Protocol: &udp, Destination: ports(53)},
	}[:l.rules]
	for k := range rules {
		rules[k].Action, rules[k].Index = model.Allow, k
	}
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: namespaceOf(i), Name: appOf(i)}, Policy: &model.Policy{
		Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", appOf(i)), AppliesIngress: true, Ingress: rules,
		AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow}}}}
}

func ports(p uint16) model.Entity { return model.Entity{Ports: []model.PortRange{{Lo: p, Hi: p}}} }

// update is a change as the datastore reports it.
func (l load) update(c change, turn int) model.Update {
	switch {
	case c.joins:
		return member(1, 10+turn)
	case c.net:
		return l.policy(changing, firstPort, netAt(turn))
	}
	return l.policy(changing, portAt(turn), netAt(0))
}

// has reports whether policies are such that there is a change of that kind.
func (l load) has(c change) bool { return !c.net || l.rules > 1 }

// linearPods are the same pods for linear rules; prefixes stand for the groups.
func (l load) linearPods() []linear.Pod {
	var list []linear.Pod
	for i := range l.slots {
		list = append(list, l.linearPod(i, firstPort))
	}
	return list
}

func (l load) linearPod(i, port int) linear.Pod {
	group := func(i int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 70 + byte(i%groups), 0, 0}), 16)
	}
	rules := []linear.Rule{{Net: group(i), Port: port}, {Net: netAt(0), Port: 9090}, {Net: group(i + 1), Port: 6000 + i}, {Net: everywhere, Port: 443}}
	pod := linear.Pod{Iface: ifaceOf(i), Ingress: [][]linear.Rule{rules[:min(l.rules, len(rules))]}, Port: 53}
	if l.rules == mostRules {
		pod.From = everywhere
	}
	return pod
}

var everywhere = netip.MustParsePrefix("0.0.0.0/0")
