package calico

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// interfaceName is what Linux takes for the name of an interface, and Calico for that of a workload's.
var interfaceName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,15}$`)

// maxAddrs is more than any workload has. Each address is looked for an owner of on every node.
const maxAddrs = 64

// Workloads say how WorkloadEndpoints are read.
type Workloads struct {
	SourceSpoofing bool // what they list as further sources counts
}

// Convert returns a WorkloadEndpoint.
func (c Workloads) Convert(o *WorkloadEndpoint) (model.EndpointUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: "WorkloadEndpoint", Namespace: o.Namespace, Name: o.Name})
	update := model.EndpointUpdate{ID: model.WorkloadID(o.Namespace, o.Name)}
	s := &o.Spec
	labels := validate.OwnLabels(o.Labels, 3)
	labels[validate.LabelNamespace] = o.Namespace
	for label, value := range map[string]string{validate.LabelOrchestrator: s.Orchestrator, validate.LabelServiceAccount: s.ServiceAccountName} {
		if value != "" {
			labels[label] = value
		}
	}
	if s.Node == "" {
		rep.Add(validate.Rejected, "spec.node", "must name the node that the workload runs on")
	}
	if !interfaceName.MatchString(s.InterfaceName) {
		rep.Add(validate.Rejected, "spec.interfaceName", "%q must be the name of an interface: 1 to 15 letters, digits, '_', '.' and '-'", s.InterfaceName)
	}
	for i, name := range s.Profiles {
		for _, wrong := range validate.DNSSubdomain(name) {
			rep.Add(validate.Rejected, element("spec.profiles", i), "%q is no name of a profile: %s", name, wrong)
		}
	}
	endpoint := &model.Endpoint{Node: s.Node, Iface: s.InterfaceName, Addrs: workloadAddrs(rep, s.IPNetworks), Labels: labels,
		Profiles: s.Profiles, Ports: workloadPorts(rep, s.Ports),
		Sources:     rep.Sources("spec.allowSpoofedSourcePrefixes", s.AllowSpoofedSourcePrefixes, c.SourceSpoofing),
		Terminating: o.DeletionTimestamp != nil, Created: validate.Created(o.CreationTimestamp)}
	if rep.OK() && len(endpoint.Addrs) > 0 { // without an address it is no endpoint yet
		update.Endpoint = endpoint
	}
	return update, rep.Done(), rep.OK()
}

// workloadAddrs reads single addresses, with or without a mask of full length.
func workloadAddrs(rep *validate.Report, texts []string) []netip.Addr {
	if len(texts) > maxAddrs {
		rep.Add(validate.Rejected, "spec.ipNetworks", "has %d entries; the limit is %d", len(texts), maxAddrs)
		return nil
	}
	var addrs []netip.Addr
	for i, text := range texts {
		at := element("spec.ipNetworks", i)
		n, wrong := network(text)
		switch {
		case wrong != "":
			rep.Add(validate.Rejected, at, "%q %s", text, wrong)
		case !n.IsSingleIP():
			rep.Add(validate.Rejected, at, "%q must be a single address", text)
		case model.UnownableReason(n.Addr()) != "":
			rep.Add(validate.Warning, at, "%s is %s, which no workload can own; ignored", n.Addr(), model.UnownableReason(n.Addr()))
		case !slices.Contains(addrs, n.Addr()):
			addrs = append(addrs, n.Addr())
		}
	}
	return addrs
}

// workloadPorts returns the ports that have names. Without a name no rule can mean a port.
func workloadPorts(rep *validate.Report, list []EndpointPort) []model.NamedPort {
	var ports []model.NamedPort
	for i, p := range list {
		at := element("spec.ports", i)
		number, wrong := p.Protocol.protocol()
		switch {
		case wrong != "" || !model.HasPorts(number):
			rep.Add(validate.Rejected, at+".protocol", "%q must be TCP, UDP or SCTP", p.Protocol.text)
		case p.Port < 1 || p.Port > 65535:
			rep.Add(validate.Rejected, at+".port", "%s must be 1 to 65535", strconv.Itoa(int(p.Port)))
		case p.Name == "" && p.HostPort == 0:
			rep.Add(validate.Rejected, at+".name", "a port must have a name, or a hostPort")
		case p.Name == "":
		case len(validation.IsValidPortName(p.Name)) > 0:
			rep.Add(validate.Rejected, at+".name", "%q is no name of a port: %s", p.Name, validation.IsValidPortName(p.Name)[0])
		default:
			ports = append(ports, model.NamedPort{Name: p.Name, Protocol: number, Port: uint16(p.Port)})
		}
	}
	return ports
}
