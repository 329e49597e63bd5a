package corpus

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// APIVersion of the kinds that exist in the corpus only. Each maps one to one to a struct of pkg/model and reaches
// features that no Kubernetes kind has. test/corpus/README.md describes them.
const APIVersion = "margay.test/v1"

// object is a document of APIVersion. Which fields a kind has is in its decode function.
type object struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`

	// Tier, Policy
	Order   *float64 `json:"order,omitempty"`
	Default string   `json:"default,omitempty"`

	// Policy, Profile
	PolicyKind   string   `json:"policyKind,omitempty"`
	Tier         string   `json:"tier,omitempty"`
	Selector     string   `json:"selector,omitempty"`
	Types        []string `json:"types,omitempty"`
	Staged       bool     `json:"staged,omitempty"`
	StagedAction string   `json:"stagedAction,omitempty"`
	Ingress      []rule   `json:"ingress,omitempty"`
	Egress       []rule   `json:"egress,omitempty"`

	// Endpoint, NetworkSet, Profile, EndpointSlice, Node
	Node     string            `json:"node,omitempty"`
	Iface    string            `json:"iface,omitempty"`
	Addrs    []netip.Addr      `json:"addrs,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
	Profiles []string          `json:"profiles,omitempty"`
	Ports    []namedPort       `json:"ports,omitempty"`
	Nets     []netip.Prefix    `json:"nets,omitempty"`
	Service  string            `json:"service,omitempty"`

	Created     uint32 `json:"created,omitempty"`
	Terminating bool   `json:"terminating,omitempty"`
}

type metadata struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
}

type namedPort struct {
	Name     string             `json:"name,omitempty"`
	Protocol intstr.IntOrString `json:"protocol"`
	Port     uint16             `json:"port"`
}

type rule struct {
	Action      string              `json:"action"`
	Index       *int                `json:"index,omitempty"` // if it is not the position in the list
	IPVersion   uint8               `json:"ipVersion,omitempty"`
	Protocol    *intstr.IntOrString `json:"protocol,omitempty"`
	NotProtocol *intstr.IntOrString `json:"notProtocol,omitempty"`
	ICMP        *icmp               `json:"icmp,omitempty"`
	NotICMP     *icmp               `json:"notICMP,omitempty"`
	Source      *entity             `json:"source,omitempty"`
	Destination *entity             `json:"destination,omitempty"`
	Unmatchable string              `json:"unmatchable,omitempty"`
}

type icmp struct {
	Type uint8  `json:"type"`
	Code *uint8 `json:"code,omitempty"`
}

type entity struct {
	Nets        []netip.Prefix       `json:"nets,omitempty"`
	NotNets     []netip.Prefix       `json:"notNets,omitempty"`
	Selector    string               `json:"selector,omitempty"`
	NotSelector string               `json:"notSelector,omitempty"`
	Ports       []intstr.IntOrString `json:"ports,omitempty"`
	NotPorts    []intstr.IntOrString `json:"notPorts,omitempty"`
	Service     string               `json:"service,omitempty"`
	Nodes       string               `json:"nodes,omitempty"`
}

// decode turns one document of APIVersion into the update it stands for.
func decode(doc []byte) (model.Update, error) {
	var o object
	if err := yaml.UnmarshalStrict(doc, &o); err != nil {
		return nil, fmt.Errorf("decode %s document: %w", APIVersion, err)
	}
	u, err := o.update()
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", o.Kind, o.Metadata.Namespace, o.Metadata.Name, err)
	}
	return u, nil
}

func (o *object) update() (model.Update, error) {
	switch o.Kind {
	case "Endpoint":
		ports, err := decodeNamedPorts(o.Ports)
		return model.EndpointUpdate{
			ID: model.WorkloadID(o.Metadata.Namespace, o.Metadata.Name),
			Endpoint: &model.Endpoint{Node: o.Node, Iface: o.Iface, Addrs: o.Addrs, Labels: o.Labels,
				Profiles: o.Profiles, Ports: ports, Created: o.Created, Terminating: o.Terminating},
		}, err
	case "NetworkSet":
		return model.NetworkSetUpdate{
			ID:  model.NetworkSetID{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name},
			Set: &model.NetworkSet{Nets: o.Nets, Labels: o.Labels, Profiles: o.Profiles},
		}, nil
	case "EndpointSlice":
		ports, err := decodeNamedPorts(o.Ports)
		if err != nil {
			return nil, err
		}
		svc, err := decodeService(o.Service)
		return model.EndpointSliceUpdate{
			ID:    model.EndpointSliceID{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name},
			Slice: &model.EndpointSlice{Service: svc, Addrs: o.Addrs, Ports: ports},
		}, err
	case "Node":
		return model.NodeUpdate{Name: o.Metadata.Name, Node: &model.Node{Addrs: o.Addrs, Labels: o.Labels}}, nil
	case "Tier":
		t := model.Tier{Order: decodeOrder(o.Order), Default: model.Deny}
		if o.Default == "Pass" {
			t.Default = model.Pass
		}
		return model.TierUpdate{Name: o.Metadata.Name, Tier: &t}, nil
	case "Profile":
		in, out, err := o.rules()
		return model.ProfileUpdate{
			Name:    o.Metadata.Name,
			Profile: &model.Profile{Labels: o.Labels, Ingress: in, Egress: out},
		}, err
	case "Policy":
		return o.policy()
	}
	return nil, fmt.Errorf("unknown kind")
}

func decodeOrder(order *float64) float64 {
	if order == nil {
		return model.NoOrder
	}
	return *order
}

func (o *object) policy() (model.Update, error) {
	kind := model.PolicyKind(o.PolicyKind)
	if kind == "" {
		kind = model.KindNetworkPolicy
		if o.Metadata.Namespace == "" {
			kind = model.KindGlobalNetworkPolicy
		}
	}
	sel, err := selector.Parse(o.Selector)
	if err != nil {
		return nil, err
	}
	p := model.Policy{Tier: o.Tier, Order: decodeOrder(o.Order), Selector: sel, Staged: o.Staged}
	if p.Tier == "" {
		p.Tier = model.TierDefault
	}
	for _, a := range []model.StagedAction{model.StagedDelete, model.StagedLearn, model.StagedIgnore} {
		if o.StagedAction == a.String() {
			p.StagedAction = a
		}
	}
	if o.StagedAction != "" && p.StagedAction == model.StagedSet {
		return nil, fmt.Errorf("stagedAction %q is neither Delete, Learn nor Ignore", o.StagedAction)
	}
	for _, t := range o.Types {
		switch t {
		case "Ingress":
			p.AppliesIngress = true
		case "Egress":
			p.AppliesEgress = true
		default:
			return nil, fmt.Errorf("type %q is neither Ingress nor Egress", t)
		}
	}
	if p.Ingress, p.Egress, err = o.rules(); err != nil {
		return nil, err
	}
	key := model.PolicyKey{Kind: kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
	return model.PolicyUpdate{Key: key, Policy: &p}, nil
}

func (o *object) rules() (ingress, egress []model.Rule, err error) {
	if ingress, err = decodeRules(o.Ingress); err != nil {
		return nil, nil, fmt.Errorf("ingress: %w", err)
	}
	if egress, err = decodeRules(o.Egress); err != nil {
		return nil, nil, fmt.Errorf("egress: %w", err)
	}
	return ingress, egress, nil
}

func decodeRules(rules []rule) ([]model.Rule, error) {
	var out []model.Rule
	for i, r := range rules {
		m, err := r.model(i)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i, err)
		}
		out = append(out, m)
	}
	return out, nil
}

var actions = map[string]model.Action{
	"Allow": model.Allow, "Deny": model.Deny, "Pass": model.Pass, "Log": model.Log,
}

func (r *rule) model(index int) (model.Rule, error) {
	m := model.Rule{Action: actions[r.Action], Index: index, IPVersion: r.IPVersion, Unmatchable: r.Unmatchable}
	if m.Action == 0 {
		return m, fmt.Errorf("unknown action %q", r.Action)
	}
	if r.Index != nil {
		m.Index = *r.Index
	}
	m.ICMP, m.NotICMP = (*model.ICMPMatch)(r.ICMP), (*model.ICMPMatch)(r.NotICMP)
	var err error
	for _, p := range []struct {
		in  *intstr.IntOrString
		out **uint8
	}{{r.Protocol, &m.Protocol}, {r.NotProtocol, &m.NotProtocol}} {
		if p.in == nil {
			continue
		}
		n, err := decodeProtocol(*p.in)
		if err != nil {
			return m, err
		}
		*p.out = &n
	}
	if m.Source, err = r.Source.model(); err != nil {
		return m, fmt.Errorf("source: %w", err)
	}
	if m.Destination, err = r.Destination.model(); err != nil {
		return m, fmt.Errorf("destination: %w", err)
	}
	return m, nil
}

func (e *entity) model() (m model.Entity, err error) {
	if e == nil {
		return m, nil
	}
	m.Nets, m.NotNets = e.Nets, e.NotNets
	if e.Selector != "" {
		if m.Selector, err = selector.Parse(e.Selector); err != nil {
			return m, err
		}
	}
	if e.NotSelector != "" {
		if m.NotSelector, err = selector.Parse(e.NotSelector); err != nil {
			return m, err
		}
	}
	if e.Nodes != "" {
		if m.Nodes, err = selector.Parse(e.Nodes); err != nil {
			return m, err
		}
	}
	m.Ports, m.NamedPorts = decodePorts(e.Ports)
	m.NotPorts, m.NotNamedPorts = decodePorts(e.NotPorts)
	if e.Service != "" {
		svc, err := decodeService(e.Service)
		m.Service = &svc
		return m, err
	}
	return m, nil
}

// decodePorts sorts the entries into numbers and ranges ("lo:hi") on one hand and names on the other.
func decodePorts(ports []intstr.IntOrString) (ranges []model.PortRange, names []string) {
	for _, p := range ports {
		lo, hi, isRange := strings.Cut(p.String(), ":")
		if !isRange {
			hi = lo
		}
		l, errLo := strconv.ParseUint(lo, 10, 16)
		h, errHi := strconv.ParseUint(hi, 10, 16)
		if errLo != nil || errHi != nil {
			names = append(names, p.String())
			continue
		}
		ranges = append(ranges, model.PortRange{Lo: uint16(l), Hi: uint16(h)})
	}
	return ranges, names
}

func decodeNamedPorts(ports []namedPort) ([]model.NamedPort, error) {
	var out []model.NamedPort
	for _, p := range ports {
		proto, err := decodeProtocol(p.Protocol)
		if err != nil {
			return nil, err
		}
		out = append(out, model.NamedPort{Name: p.Name, Protocol: proto, Port: p.Port})
	}
	return out, nil
}

func decodeService(text string) (model.ServiceKey, error) {
	ns, name, ok := strings.Cut(text, "/")
	if !ok {
		return model.ServiceKey{}, fmt.Errorf("service %q is not namespace/name", text)
	}
	return model.ServiceKey{Namespace: ns, Name: name}, nil
}

var protocols = map[string]uint8{
	"tcp": model.ProtoTCP, "udp": model.ProtoUDP, "sctp": model.ProtoSCTP, "udplite": model.ProtoUDPLite,
	"icmp": model.ProtoICMP, "icmpv6": model.ProtoICMPv6,
}

func decodeProtocol(p intstr.IntOrString) (uint8, error) {
	if p.Type == intstr.Int && 0 < p.IntVal && p.IntVal <= math.MaxUint8 {
		return uint8(p.IntVal), nil
	}
	if n, ok := protocols[strings.ToLower(p.StrVal)]; ok {
		return n, nil
	}
	return 0, fmt.Errorf("unknown protocol %q", p.String())
}
