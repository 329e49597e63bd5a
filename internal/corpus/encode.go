package corpus

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Format writes a corpus file: the comment, the updates as documents of APIVersion and the lines of expect. It is how a
// random counter-example becomes a case. Updates that say that something is absent, Services and InSync are left out.
func Format(doc string, updates []model.Update, expect ...string) ([]byte, error) {
	var text [][]byte
	for _, u := range updates {
		o, ok := encode(u)
		if !ok {
			continue
		}
		o.APIVersion = APIVersion
		b, err := yaml.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s/%s: %w", o.Kind, o.Metadata.Namespace, o.Metadata.Name, err)
		}
		text = append(text, b)
	}
	return FormatYAML(doc, text, expect...), nil
}

// FormatYAML writes a corpus file of documents that are YAML already.
func FormatYAML(doc string, documents [][]byte, expect ...string) []byte {
	var all []byte
	for i, d := range documents {
		if i > 0 {
			all = append(all, "---\n"...)
		}
		all = append(all, d...)
	}
	return txtar.Format(&txtar.Archive{
		Comment: []byte(doc + "\n"),
		Files: []txtar.File{
			{Name: "resources.yaml", Data: all},
			{Name: "expect", Data: []byte(strings.Join(expect, "\n") + "\n")},
		},
	})
}

// Line writes a check of expect for a packet between two ends, which stand as addresses where they are no endpoint.
func Line(src, dst *model.EndpointID, pkt model.Packet, legs ...model.Verdict) string {
	allow := "allow"
	var listed []string
	for _, v := range legs {
		if !v.Allow {
			allow = "deny"
		}
		listed = append(listed, v.By.Direction.String()+" "+v.By.String())
	}
	left, right := pkt.Src.String(), pkt.Dst.String()
	if pkt.Src.Is6() {
		left, right = "["+left+"]", "["+right+"]"
	}
	if src != nil {
		left = src.String()
	}
	if dst != nil {
		right = dst.String()
	}
	var l4 string
	switch {
	case pkt.Protocol == model.ProtoTCP, pkt.Protocol == model.ProtoUDP, pkt.Protocol == model.ProtoSCTP:
		left += fmt.Sprintf(":%d", pkt.SrcPort)
		l4 = fmt.Sprintf(":%d/%s", pkt.DstPort, protocolName(pkt.Protocol))
	case pkt.Protocol == model.ProtoICMP && pkt.Src.Is4(), pkt.Protocol == model.ProtoICMPv6 && pkt.Src.Is6():
		l4 = fmt.Sprintf("/%s:%d/%d", protocolName(pkt.Protocol), pkt.ICMPType, pkt.ICMPCode)
	default:
		l4 = fmt.Sprintf("/proto:%d", pkt.Protocol)
	}
	if pkt.Src.Is6() && src != nil && dst != nil && pkt.Protocol != model.ProtoICMPv6 {
		l4 += "/v6"
	}
	return fmt.Sprintf("%s -> %s%s  %s  %s", left, right, l4, allow, strings.Join(listed, "  "))
}

func protocolName(p uint8) string {
	for _, name := range slices.Sorted(maps.Keys(protocols)) {
		if protocols[name] == p {
			return name
		}
	}
	return fmt.Sprint(p)
}

// encode is the reverse of decode. Not ok: there is no document for the update.
func encode(u model.Update) (o object, ok bool) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		o = object{Kind: "Endpoint", Metadata: metadata{u.ID.Name, u.ID.Namespace}}
		if e := u.Endpoint; e != nil {
			o.Node, o.Iface, o.Addrs, o.Labels, o.Profiles = e.Node, e.Iface, e.Addrs, e.Labels, e.Profiles
			o.Ports, o.Created, o.Terminating = encodeNamedPorts(e.Ports), e.Created, e.Terminating
		}
		return o, u.Endpoint != nil
	case model.NetworkSetUpdate:
		o = object{Kind: "NetworkSet", Metadata: metadata{u.ID.Name, u.ID.Namespace}}
		if s := u.Set; s != nil {
			o.Nets, o.Labels, o.Profiles = s.Nets, s.Labels, s.Profiles
		}
		return o, u.Set != nil
	case model.EndpointSliceUpdate:
		o = object{Kind: "EndpointSlice", Metadata: metadata{u.ID.Name, u.ID.Namespace}}
		if s := u.Slice; s != nil {
			o.Service, o.Addrs, o.Ports = s.Service.String(), s.Addrs, encodeNamedPorts(s.Ports)
		}
		return o, u.Slice != nil
	case model.NodeUpdate:
		o = object{Kind: "Node", Metadata: metadata{Name: u.Name}}
		if u.Node != nil {
			o.Addrs, o.Labels = u.Node.Addrs, u.Node.Labels
		}
		return o, u.Node != nil
	case model.TierUpdate:
		o = object{Kind: "Tier", Metadata: metadata{Name: u.Name}}
		if u.Tier != nil {
			o.Order, o.Default = encodeOrder(u.Tier.Order), u.Tier.Default.String()
		}
		return o, u.Tier != nil
	case model.ProfileUpdate:
		o = object{Kind: "Profile", Metadata: metadata{Name: u.Name}}
		if p := u.Profile; p != nil {
			o.Labels, o.Ingress, o.Egress = p.Labels, encodeRules(p.Ingress), encodeRules(p.Egress)
		}
		return o, u.Profile != nil
	case model.PolicyUpdate:
		return encodePolicy(u), u.Policy != nil
	}
	return o, false
}

func encodePolicy(u model.PolicyUpdate) object {
	o := object{Kind: "Policy", Metadata: metadata{u.Key.Name, u.Key.Namespace}, PolicyKind: string(u.Key.Kind)}
	p := u.Policy
	if p == nil {
		return o
	}
	o.Tier, o.Order, o.Selector, o.Staged = p.Tier, encodeOrder(p.Order), p.Selector.String(), p.Staged
	if p.Staged && p.StagedAction != model.StagedSet {
		o.StagedAction = p.StagedAction.String()
	}
	if p.AppliesIngress {
		o.Types = append(o.Types, "Ingress")
	}
	if p.AppliesEgress {
		o.Types = append(o.Types, "Egress")
	}
	o.Ingress, o.Egress = encodeRules(p.Ingress), encodeRules(p.Egress)
	return o
}

func encodeOrder(order float64) *float64 {
	if math.IsInf(order, 1) {
		return nil
	}
	return &order
}

func encodeRules(rules []model.Rule) []rule {
	var out []rule
	for i := range rules {
		r := &rules[i]
		e := rule{Action: r.Action.String(), IPVersion: r.IPVersion, Unmatchable: r.Unmatchable}
		if r.Index != i {
			e.Index = &r.Index
		}
		e.Protocol, e.NotProtocol = encodeProtocol(r.Protocol), encodeProtocol(r.NotProtocol)
		e.ICMP, e.NotICMP = (*icmp)(r.ICMP), (*icmp)(r.NotICMP)
		e.Source, e.Destination = encodeEntity(r.Source), encodeEntity(r.Destination)
		out = append(out, e)
	}
	return out
}

func encodeProtocol(p *uint8) *intstr.IntOrString {
	if p == nil {
		return nil
	}
	v := intstr.FromInt32(int32(*p))
	return &v
}

func encodeEntity(m model.Entity) *entity {
	e := entity{
		Nets: m.Nets, NotNets: m.NotNets,
		Selector: selectorText(m.Selector), NotSelector: selectorText(m.NotSelector),
		Ports: encodePorts(m.Ports, m.NamedPorts), NotPorts: encodePorts(m.NotPorts, m.NotNamedPorts),
	}
	e.Nodes = selectorText(m.Nodes)
	if m.Service != nil {
		e.Service = m.Service.String()
	}
	return &e
}

func selectorText(s *selector.Selector) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func encodePorts(ranges []model.PortRange, names []string) []intstr.IntOrString {
	var out []intstr.IntOrString
	for _, r := range ranges {
		out = append(out, intstr.FromString(fmt.Sprintf("%d:%d", r.Lo, r.Hi)))
	}
	for _, n := range names {
		out = append(out, intstr.FromString(n))
	}
	return out
}

func encodeNamedPorts(ports []model.NamedPort) []namedPort {
	var out []namedPort
	for _, p := range ports {
		out = append(out, namedPort{Name: p.Name, Protocol: intstr.FromInt32(int32(p.Protocol)), Port: p.Port})
	}
	return out
}
