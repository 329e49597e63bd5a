package corpus

import (
	"fmt"
	"net/netip"
	"strings"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

var (
	labelKeys   = []string{"a", "b", "c", "pcns.a"}
	labelValues = []string{"x", "y", "xy"}
	namespaces  = []string{"n1", "n2"}
	portNames   = []string{"http", "dns", "m"}
	tierNames   = []string{model.TierDefault, model.TierDefault, "t1", "t2", model.TierKubeAdmin, model.TierKubeBaseline, "t3"}
	services    = []model.ServiceKey{{Namespace: "n1", Name: "s"}, {Namespace: "n2", Name: "s"}}
)

// DrawModel draws a cluster and its policies with every feature that the model has, ending with InSync.
func DrawModel(t *rapid.T) []model.Update {
	var all []model.Update
	for i := range 2 {
		all = append(all, model.NodeUpdate{Name: fmt.Sprintf("node%d", i), Node: &model.Node{Addrs: nodeAddrs(i), Labels: drawLabels(t)}})
	}
	for _, name := range []string{"kns.n1", "kns.n2", "extra"} {
		if chance(t, 8, "no profile") {
			continue
		}
		all = append(all, model.ProfileUpdate{Name: name, Profile: drawProfile(t)})
	}
	for _, i := range upTo(t, 1, 9, "endpoints") {
		all = append(all, drawEndpoint(t, i))
	}
	for _, i := range upTo(t, 0, 4, "network sets") {
		all = append(all, drawNetworkSet(t, i))
	}
	for _, i := range upTo(t, 0, 3, "slices") {
		all = append(all, drawSlice(t, i))
	}
	for _, name := range []string{"t1", "t2"} {
		if !chance(t, 4, "no tier") {
			all = append(all, model.TierUpdate{Name: name, Tier: &model.Tier{
				Order:   one(t, []float64{1, 2, model.OrderKubeAdmin, model.OrderDefaultTier, 2e7, model.NoOrder}, "order"),
				Default: one(t, []model.Action{model.Deny, model.Pass}, "default"),
			}})
		}
	}
	for range upTo(t, 1, 7, "policies") {
		p := drawPolicy(t)
		all = append(all, p)
		if staging, ok := p.Key.Staging(); ok && !p.Policy.Staged && chance(t, 4, "another version") {
			all = append(all, drawVersion(t, staging))
		}
	}
	return append(all, model.InSync{})
}

func nodeAddrs(i int) []netip.Addr {
	return parseAddrs(fmt.Sprintf("192.168.0.%d", i), fmt.Sprintf("fd00:192::%d", i))
}

func drawLabels(t *rapid.T) map[string]string {
	return rapid.MapOfN(rapid.SampledFrom(labelKeys), rapid.SampledFrom(labelValues), 0, 3).Draw(t, "labels")
}

// drawProfile draws mostly the usual allow-all, and sometimes rules.
func drawProfile(t *rapid.T) *model.Profile {
	p := &model.Profile{Labels: drawLabels(t)}
	if chance(t, 3, "profile rules") {
		p.Ingress, p.Egress = drawRules(t, model.Ingress), drawRules(t, model.Egress)
		return p
	}
	p.Ingress, p.Egress = []model.Rule{{Action: model.Allow}}, []model.Rule{{Action: model.Allow}}
	return p
}

func drawEndpoint(t *rapid.T, i int) model.Update {
	ns := one(t, namespaces, "namespace")
	e := &model.Endpoint{
		Node:     fmt.Sprintf("node%d", i%2),
		Iface:    fmt.Sprintf("cali%d", i),
		Labels:   drawLabels(t),
		Profiles: []string{"kns." + ns},
	}
	if chance(t, 4, "extra profile") {
		e.Profiles = append(e.Profiles, "extra")
	}
	n := i + 1
	if chance(t, 12, "address in use") {
		n = 1
	}
	if e.Terminating = chance(t, 8, "terminating"); e.Terminating && chance(t, 2, "address goes to the next one") {
		n++
	}
	e.Created = uint32(rapid.IntRange(0, 2).Draw(t, "created"))
	families := rapid.IntRange(0, 3).Draw(t, "families")
	if families != 1 {
		e.Addrs = append(e.Addrs, netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}))
	}
	if families != 2 {
		e.Addrs = append(e.Addrs, netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)}))
	}
	for range upTo(t, 0, 3, "ports") {
		e.Ports = append(e.Ports, drawNamedPort(t))
	}
	e.Labels["projectcalico.org/namespace"] = ns
	return model.EndpointUpdate{ID: model.WorkloadID(ns, fmt.Sprintf("e%d", i)), Endpoint: e}
}

func drawNamedPort(t *rapid.T) model.NamedPort {
	return model.NamedPort{
		Name:     one(t, portNames, "name"),
		Protocol: one(t, []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}, "protocol"),
		Port:     one(t, numbers, "port"),
	}
}

func drawNetworkSet(t *rapid.T, i int) model.Update {
	set := &model.NetworkSet{Nets: some(t, prefixes, 4, "nets"), Labels: drawLabels(t)}
	id := model.NetworkSetID{Name: fmt.Sprintf("set%d", i)}
	if chance(t, 2, "namespaced") {
		id.Namespace = one(t, namespaces, "namespace")
		set.Labels["projectcalico.org/namespace"] = id.Namespace
		set.Profiles = []string{"kns." + id.Namespace}
	}
	return model.NetworkSetUpdate{ID: id, Set: set}
}

func drawSlice(t *rapid.T, i int) model.Update {
	s := &model.EndpointSlice{Service: one(t, services, "service")}
	for _, n := range some(t, []byte{1, 2, 3, 4, 99}, 3, "backends") {
		s.Addrs = append(s.Addrs, netip.AddrFrom4([4]byte{10, 0, 0, n}), netip.AddrFrom16([16]byte{0: 0xfd, 15: n}))
	}
	for range upTo(t, 0, 2, "ports") {
		s.Ports = append(s.Ports, drawNamedPort(t))
	}
	return model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: s.Service.Namespace, Name: fmt.Sprintf("slice%d", i)}, Slice: s}
}

// drawVersion draws a staged policy that stands for an enforced one.
func drawVersion(t *rapid.T, key model.PolicyKey) model.PolicyUpdate {
	p := drawPolicy(t)
	p.Key, p.Policy.Staged = key, true
	p.Policy.StagedAction = one(t, []model.StagedAction{model.StagedSet, model.StagedSet, model.StagedDelete, model.StagedLearn, model.StagedIgnore}, "action")
	return p
}

func drawPolicy(t *rapid.T) model.PolicyUpdate {
	key := model.PolicyKey{
		Kind: one(t, []model.PolicyKind{model.KindGlobalNetworkPolicy, model.KindNetworkPolicy, model.KindKubernetesNetworkPolicy}, "kind"),
		Name: one(t, []string{"p", "p-a", "p.b", "q", "q1", "q10"}, "name"),
	}
	if key.Kind != model.KindGlobalNetworkPolicy {
		key.Namespace = one(t, namespaces, "namespace")
	}
	types := rapid.IntRange(0, 2).Draw(t, "types")
	p := &model.Policy{
		Tier:           one(t, tierNames, "tier"),
		Order:          one(t, []float64{1, 1, 2, model.OrderNetworkPolicy, model.NoOrder}, "order"),
		Selector:       drawSelector(t),
		AppliesIngress: types != 1,
		AppliesEgress:  types != 2,
		Staged:         chance(t, 8, "staged"),
		Ingress:        drawRules(t, model.Ingress),
		Egress:         drawRules(t, model.Egress),
	}
	if staging, ok := key.Staging(); ok && p.Staged {
		key = staging // as every source makes them
	}
	return model.PolicyUpdate{Key: key, Policy: p}
}

func drawRules(t *rapid.T, dir model.Direction) []model.Rule {
	var rules []model.Rule
	index := -1
	for i := range upTo(t, 0, 4, "rules") {
		if i == 0 || !chance(t, 4, "same API rule") {
			index++
		}
		r := drawRule(t, dir)
		r.Index = index
		if i > 0 && rules[i-1].Index == index {
			r.Action = rules[i-1].Action
		}
		rules = append(rules, r)
	}
	return rules
}

// drawRule draws a rule that validation would let through.
func drawRule(t *rapid.T, dir model.Direction) model.Rule {
	r := model.Rule{
		Action:    one(t, []model.Action{model.Allow, model.Allow, model.Deny, model.Deny, model.Pass, model.Log}, "action"),
		IPVersion: one(t, []uint8{0, 0, 0, 0, 4, 6}, "version"),
	}
	if p := one(t, []uint8{0, 0, 6, 6, 17, 17, 132, 1, 58, 136, 47}, "protocol"); p != 0 {
		r.Protocol = &p
	}
	if p := one(t, []uint8{0, 0, 0, 0, 0, 0, 6, 17, 1, 47}, "not protocol"); p != 0 {
		r.NotProtocol = &p
	}
	if r.Protocol != nil && (*r.Protocol == model.ProtoICMP || *r.Protocol == model.ProtoICMPv6) {
		if *r.Protocol == model.ProtoICMP && r.IPVersion == 6 || *r.Protocol == model.ProtoICMPv6 && r.IPVersion == 4 {
			r.IPVersion = 0
		}
		r.ICMP, r.NotICMP = drawICMP(t), drawICMP(t)
	}
	if chance(t, 40, "http") {
		r.Unmatchable = "http match"
	}
	r.Source = drawEntity(t, r.Protocol)
	r.Destination = drawEntity(t, r.Protocol)
	if chance(t, 12, "nodes") {
		remote := &r.Destination
		if dir == model.Ingress {
			remote = &r.Source
		}
		remote.Selector, remote.NotSelector, remote.NamedPorts, remote.NotNamedPorts = nil, nil, nil, nil
		remote.Nodes = drawSelector(t)
	}
	if chance(t, 10, "service") {
		svc := one(t, services, "service")
		if dir == model.Ingress {
			r.Source = model.Entity{Service: &svc}
		} else {
			r.Destination = model.Entity{Service: &svc}
		}
	}
	return r
}

func drawICMP(t *rapid.T) *model.ICMPMatch {
	if !chance(t, 3, "icmp") {
		return nil
	}
	m := &model.ICMPMatch{Type: one(t, icmpTypes, "type")}
	if chance(t, 2, "with code") {
		code := one(t, icmpCodes, "code")
		m.Code = &code
	}
	return m
}

func drawEntity(t *rapid.T, proto *uint8) model.Entity {
	var e model.Entity
	if chance(t, 4, "nets") {
		e.Nets = some(t, prefixes, 4, "nets")
	}
	if chance(t, 6, "not nets") {
		e.NotNets = some(t, prefixes, 3, "not nets")
	}
	if chance(t, 3, "selector") {
		e.Selector = drawSelector(t)
	} else if chance(t, 6, "not selector") {
		e.NotSelector = drawSelector(t)
	}
	if proto == nil || model.HasPorts(*proto) {
		if chance(t, 6, "named ports") {
			e.NamedPorts = some(t, portNames, 2, "names")
		}
		if chance(t, 10, "not named ports") {
			e.NotNamedPorts = some(t, portNames, 2, "not names")
		}
	}
	if proto != nil && model.HasPorts(*proto) {
		if chance(t, 4, "ports") {
			e.Ports = drawRanges(t)
		}
		if chance(t, 8, "not ports") {
			e.NotPorts = drawRanges(t)
		}
	}
	return e
}

func drawRanges(t *rapid.T) []model.PortRange {
	var out []model.PortRange
	for range upTo(t, 1, 7, "ranges") {
		lo := one(t, numbers, "lo")
		hi := lo
		if chance(t, 3, "range") {
			hi = max(lo, one(t, numbers, "hi"))
		}
		out = append(out, model.PortRange{Lo: lo, Hi: hi})
	}
	return out
}

func drawSelector(t *rapid.T) *selector.Selector {
	text := drawSelectorText(t, 2)
	s, err := selector.Parse(text)
	if err != nil {
		t.Fatalf("the generator made a selector that does not parse: %v", err)
	}
	return s
}

func drawSelectorText(t *rapid.T, depth int) string {
	key := one(t, append([]string{"projectcalico.org/namespace"}, labelKeys...), "key")
	value := "'" + one(t, append(namespaces, labelValues...), "value") + "'"
	kind := rapid.IntRange(0, 12).Draw(t, "kind")
	if depth == 0 {
		kind %= 8
	}
	switch kind {
	case 0, 1:
		return "all()"
	case 2:
		return "has(" + key + ")"
	case 3:
		return key + " == " + value
	case 4:
		return key + " != " + value
	case 5:
		return key + " in {'x', " + value + "}"
	case 6:
		return key + " not in {'x', " + value + "}"
	case 7:
		return key + " " + one(t, []string{"contains", "starts with", "ends with"}, "op") + " " + value
	case 8, 9:
		return "!(" + drawSelectorText(t, depth-1) + ")"
	}
	op := one(t, []string{" && ", " || "}, "op")
	return "(" + strings.Join([]string{drawSelectorText(t, depth-1), drawSelectorText(t, depth-1)}, op) + ")"
}
