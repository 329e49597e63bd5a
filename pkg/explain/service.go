package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// portsOf gives a destination that is no Service the port that is asked for. Containers of one pod may call several ports, or one number of
// several protocols, by one name. Rules mean each of them by it, so each is explained.
func (l lookup) portsOf(p party) ([]party, error) {
	if l.r.PortName == "" {
		p.protocol, p.port = l.protocol(), l.r.Port
		return []party{p}, nil
	}
	ep, ok := l.graph.FindEndpoint(p.ends[0].Endpoint)
	if !ok {
		return nil, fmt.Errorf("%s is no pod, so port %q has to be a number", p.name, l.r.PortName)
	}
	var all []party
	for _, port := range l.askedFor(ep.Ports) {
		p.protocol, p.port = port.Protocol, port.Port
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("pod %s has no port named %q%s; %s", p.name, l.r.PortName, ofProtocol(l.r.Protocol), portList(ep.Ports, "it names none"))
	}
	slices.SortFunc(all, compareParties)
	return all, nil
}

// withPorts gives each destination, of which none is a Service, the ports that are asked for.
func (l lookup) withPorts(f found) (found, error) {
	var all []party
	for _, p := range f.parties {
		with, err := l.portsOf(p)
		if err != nil {
			return f, err
		}
		all = append(all, with...)
	}
	f.parties = all
	return f, nil
}

// isProtocol reports whether the request is about the protocol, which it is if it does not say one.
func (r Request) isProtocol(protocol uint8) bool { return r.Protocol == 0 || r.Protocol == protocol }

func ofProtocol(p uint8) string {
	if p == 0 {
		return ""
	}
	return " of protocol " + ProtocolName(p)
}

// portList is "its ports are http (8080/tcp), metrics (9090/tcp)", or none.
func portList(ports []model.NamedPort, none string) string {
	var texts []string
	for _, p := range ports {
		text := fmt.Sprintf("%d/%s", p.Port, ProtocolName(p.Protocol))
		if p.Name != "" {
			text = fmt.Sprintf("%s (%s)", p.Name, text)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return none
	}
	return "its ports are " + shortened(texts)
}

// backends are the backends of a Service on the ports that are asked for; of one family if an address of the Service
// is asked for. Policy judges the backend that kube-proxy picks, so each is explained.
func (l lookup) backends(key model.ServiceKey, vip netip.Addr) (found, error) {
	service, ok := l.graph.FindService(key)
	if !ok {
		n := name{kind: "Service", namespace: key.Namespace, name: key.Name}
		return found{}, fmt.Errorf("no Service %s%s", key, meant(l.graph, n, true))
	}
	if service.Headless {
		return l.headless(key)
	}
	f := found{text: "Service " + key.String(), translated: true, note: "kube-proxy picks one of the backends of Service " + key.String() + ", and policy judges the backend"}
	if l.r.Protocol != 0 && !model.HasPorts(l.r.Protocol) {
		return f, fmt.Errorf("the Service %s does not forward %s: ask about a pod", key, ProtocolName(l.r.Protocol))
	}
	ports, err := l.servicePorts(key, service)
	if err != nil {
		return f, err
	}
	type named struct { // a port of a Service is that of its backends with this name and protocol
		name     string
		protocol uint8
	}
	wanted := map[named]bool{}
	for _, p := range ports {
		wanted[named{p.Name, p.Protocol}] = true
	}
	var list backendList
	for _, slice := range l.slices(key, &list) {
		for _, port := range slice.Ports {
			if wanted[named{port.Name, port.Protocol}] {
				list.add(slice.Addrs, port, func(a netip.Addr) bool { return !vip.IsValid() || a.Is4() == vip.Is4() })
			}
		}
	}
	l.addBackends(&f, key, &list)
	if len(f.parties) == 0 {
		return f, l.noBackends(key, onPorts(ports))
	}
	slices.SortFunc(f.parties, compareParties)
	return f, nil
}

// compareParties orders backends.
func compareParties(a, b party) int {
	return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
}

// noBackends says why connections to a Service fail. Manifests that do not come from a cluster may lack the objects that name the backends,
// of which lint says the same.
func (l lookup) noBackends(key model.ServiceKey, onPort string) error {
	if len(l.graph.Slices(key)) == 0 {
		return fmt.Errorf("there is no EndpointSlice of Service %s, so its backends are not known: ask about a pod, or add the EndpointSlice if manifests lack it; "+
			"in a cluster connections to the Service fail whatever policy says", key)
	}
	return fmt.Errorf("the Service %s has no backends%s, so connections to it fail whatever policy says", key, onPort)
}

// servicePorts are the ports of a Service that are asked for. Without a cluster address clients speak to the backends
// themselves, so ports can also be asked for by the backends' numbers. Of two ports with one number TCP is meant, unless
// the request says otherwise.
func (l lookup) servicePorts(key model.ServiceKey, s *model.Service) ([]model.NamedPort, error) {
	ports := l.askedFor(s.Ports)
	if len(ports) == 0 && len(s.Cluster) == 0 {
		for _, slice := range l.slices(key, &backendList{}) {
			ports = append(ports, l.askedFor(slice.Ports)...)
		}
	}
	isTCP := func(p model.NamedPort) bool { return p.Protocol == model.ProtoTCP }
	if l.r.Port != 0 && slices.ContainsFunc(ports, isTCP) && l.r.Protocol == 0 {
		ports = slices.DeleteFunc(ports, func(p model.NamedPort) bool { return !isTCP(p) })
	}
	if len(ports) > 0 {
		return ports, nil
	}
	if len(s.Ports) == 0 && l.r.Port == 0 && l.r.PortName == "" {
		return nil, fmt.Errorf("the Service %s has neither ports nor backends (of the type ExternalName?), so no policy can be evaluated: ask about an address", key)
	}
	asked := fmt.Sprint(l.r.Port)
	if l.r.PortName != "" {
		asked = fmt.Sprintf("%q", l.r.PortName)
	}
	return nil, fmt.Errorf("the Service %s has no port %s%s; %s", key, asked, ofProtocol(l.r.Protocol), portList(s.Ports, "it names none"))
}

func (l lookup) askedFor(list []model.NamedPort) []model.NamedPort {
	var ports []model.NamedPort
	for _, p := range list {
		if l.r.isProtocol(p.Protocol) && (l.r.Port == 0 || l.r.Port == p.Port) && (l.r.PortName == "" || l.r.PortName == p.Name) {
			ports = append(ports, p)
		}
	}
	return ports
}

func onPorts(ports []model.NamedPort) string {
	if len(ports) != 1 {
		return ""
	}
	return fmt.Sprintf(" on port %d/%s", ports[0].Port, ProtocolName(ports[0].Protocol))
}
