package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// lookup finds the ends of a request in a graph.
type lookup struct {
	graph *calc.Graph
	r     Request
}

func (l lookup) source() (found, error) {
	if addr, ok := parseAddr(l.r.Src); ok {
		if why := model.UnownableReason(addr); why != "" && !addr.IsLinkLocalUnicast() {
			return found{}, fmt.Errorf("%s is %s: no packet that policy judges comes from there", addr, why)
		}
		p := l.address(addr)
		cluster, external := l.graph.ServicesByAddr(addr)
		if services := append(cluster, external...); len(cluster) > 0 || len(external) > 0 && !p.isOwned() {
			return found{}, fmt.Errorf("%s is an address of Service %s, which opens no connections: the source is a pod or another address", addr, services[0])
		}
		return found{text: p.name, parties: []party{p}}, nil
	}
	n, err := parseName(l.r.Src, l.r.Namespace)
	if err != nil {
		return found{}, err
	}
	if n.kind == "Service" {
		return found{}, fmt.Errorf("the Service %s opens no connections: the source is a pod, a workload such as deploy/NAME, or an address", n.service())
	}
	return l.named(n, false)
}

func (l lookup) destination() (found, error) {
	if addr, ok := parseAddr(l.r.Dst); ok {
		if addr.IsLoopback() || addr.IsUnspecified() {
			return found{}, fmt.Errorf("%s is %s: what is sent there never leaves the sender, so no policy judges it", addr, model.UnownableReason(addr))
		}
		return l.atAddress(addr)
	}
	n, err := parseName(l.r.Dst, l.r.Namespace)
	if err != nil {
		return found{}, err
	}
	if n.kind == "Service" {
		return l.backends(n.service(), netip.Addr{})
	}
	if _, isPod := l.graph.FindEndpoint(n.pod()); n.kind == "" && !isPod {
		for _, key := range []model.ServiceKey{n.service(), dnsService(n)} {
			if _, ok := l.graph.FindService(key); ok {
				return l.backends(key, netip.Addr{})
			}
		}
	}
	to, err := l.named(n, true)
	if err != nil {
		return to, err
	}
	return l.withPorts(to)
}

// atAddress finds what packets to an address arrive at. kube-proxy translates them for the Service whose cluster address it is. An external
// address of a Service may be a pod's or a node's own, which has it for all ports that are not the Service's.
func (l lookup) atAddress(addr netip.Addr) (found, error) {
	cluster, external := l.graph.ServicesByAddr(addr)
	if len(cluster) > 0 {
		return l.backends(cluster[0], addr)
	}
	own := l.address(addr)
	anyPort := l.r.Port == 0 && l.r.PortName == ""
	var with []model.ServiceKey // the port that is asked for
	for _, key := range external {
		service, _ := l.graph.FindService(key)
		if _, err := l.servicePorts(key, service); err == nil {
			with = append(with, key)
		}
	}
	switch {
	case len(external) == 0, own.isOwned() && (anyPort || len(with) == 0):
		f, err := l.withPorts(found{text: own.name, parties: []party{own}})
		if len(external) > 0 && anyPort {
			f.note = fmt.Sprintf("the address is also an external one of Service %s, to whose backends kube-proxy translates its ports", external[0])
		}
		return f, err
	case len(with) == 0:
		return l.backends(external[0], addr) // which says what ports it has
	}
	f, err := l.backends(with[0], addr)
	if len(with) > 1 {
		f.note += fmt.Sprintf("; Service %s has the same external address and port, and which of them gets packets is not known", with[1])
		f.left = append(f.left, fmt.Sprintf("backends of Service %s", with[1]))
	}
	return f, err
}

// dnsService is the Service that the name means in the cluster's DNS; zero: none.
func dnsService(n name) model.ServiceKey {
	key, _ := n.serviceByDNS()
	return key
}

// named finds the pod, workload or node of a name.
func (l lookup) named(n name, orService bool) (found, error) {
	if pod := model.WorkloadID(strings.SplitN(n.text, "/", 2)[0], n.name); n.kind != "" && n.alone {
		if _, ok := l.graph.FindEndpoint(pod); ok {
			return l.pods(pod.String(), pod) // of a namespace that is called as a kind is
		}
	}
	switch n.kind {
	case "Node":
		addrs, ok := l.graph.NodeAddrs(n.name)
		if !ok || len(addrs) == 0 {
			return found{}, fmt.Errorf("no node %s with an address", n.name)
		}
		p := party{name: "node " + n.name}
		for _, a := range addrs {
			p.ends = append(p.ends, End{Addr: a, Node: n.name})
		}
		return found{text: p.name, parties: []party{p}}, nil
	case "", "Pod":
		return l.pod(n, orService)
	}
	pods := podsOf(l.graph, n)
	text := n.kind + " " + n.pod().String()
	if len(pods) == 0 {
		return found{}, fmt.Errorf("%s has no pod with its own IP address (%s)%s", text, withoutAddress, meant(l.graph, n, orService))
	}
	return l.pods(text, pods...)
}

// withoutAddress says which pods are no endpoints.
const withoutAddress = "finished pods have none, and host-network pods that of their node"

// ofHost says that a pod is in the network of a node, which policy judges in its place.
func (l lookup) ofHost(pod model.EndpointID, node string) error {
	if addrs, _ := l.graph.NodeAddrs(node); len(addrs) == 0 {
		return fmt.Errorf("pod %s is in the network of its node %s, of which no object with an address is known: give the node's address in its place", pod, node)
	}
	return fmt.Errorf("pod %s is in the network of its node and has its addresses: give node/%s in its place", pod, node)
}

// pod finds one pod by its name or by how only its name begins.
func (l lookup) pod(n name, orService bool) (found, error) {
	if _, ok := l.graph.FindEndpoint(n.pod()); ok {
		return l.pods(n.pod().String(), n.pod())
	}
	if node := l.graph.HostOf(n.pod()); node != "" {
		return found{}, l.ofHost(n.pod(), node)
	}
	what := "no pod "
	if orService && n.kind == "" {
		what = "no pod or Service "
	}
	switch pods := beginning(l.graph, n); {
	case len(pods) == 1:
		return l.pods(pods[0].String(), pods[0])
	case len(pods) > 1:
		names := make([]string, 0, len(pods))
		for _, id := range pods {
			names = append(names, id.String())
		}
		return found{}, fmt.Errorf("%s%s; the names of %d pods begin with it: %s; give one of them, or deploy/NAME for all pods of a workload",
			what, n.pod(), len(pods), shortened(names))
	}
	if n.likeAddress() {
		return found{}, fmt.Errorf("%s is not an IP address", n.text)
	}
	hint := meant(l.graph, n, orService)
	if hint == "" && n.likeDomain() {
		hint = "; names outside of the cluster are not resolved: give the address"
	}
	return found{}, fmt.Errorf("%s%s has its own IP address (%s)%s", what, n.pod(), withoutAddress, hint)
}

func (l lookup) pods(text string, ids ...model.EndpointID) (found, error) {
	f := found{text: text}
	for _, id := range ids {
		ep, _ := l.graph.FindEndpoint(id)
		p := party{name: id.String()}
		for _, a := range ep.Addrs {
			p.ends = append(p.ends, End{Addr: a, Endpoint: id, Node: ep.Node})
		}
		if len(p.ends) > 0 {
			f.parties = append(f.parties, p)
		} else {
			f.left = append(f.left, fmt.Sprintf("%s, which owns no address now%s", id, l.lost(id)))
		}
	}
	if len(f.parties) == 0 {
		lost := ""
		if len(ids) == 1 {
			lost = l.lost(ids[0])
		}
		return f, fmt.Errorf("%s owns no address now%s, so no policy can be evaluated for it", text, lost)
	}
	return f, nil
}

// lost says whose the addresses are that a pod has and does not own: " (10.0.0.1 belongs to shop/b)"; empty: it has none.
func (l lookup) lost(pod model.EndpointID) string {
	var texts []string
	for _, claim := range l.graph.LostClaims() {
		if claim.Endpoint != pod {
			continue
		}
		cluster, _ := l.graph.ServicesByAddr(claim.Addr)
		switch owner := l.address(claim.Addr).ends[0]; {
		case owner.IsPod():
			texts = append(texts, fmt.Sprintf("%s belongs to %s", claim.Addr, owner.Endpoint))
		case owner.Node != "":
			texts = append(texts, fmt.Sprintf("%s belongs to node %s", claim.Addr, owner.Node))
		case len(cluster) > 0:
			texts = append(texts, fmt.Sprintf("%s is the cluster address of Service %s", claim.Addr, cluster[0]))
		default:
			texts = append(texts, claim.Text())
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return " (" + shortened(texts) + ")"
}

// address is the party that has an address.
func (l lookup) address(addr netip.Addr) party {
	end := End{Addr: addr, Node: l.graph.NodeByAddr(addr)}
	if end.Node == "" && slices.Contains(l.r.NodeAddrs, addr) {
		end.Node = l.r.Rules.Node
	}
	if id, ok := l.graph.EndpointByAddr(addr); ok {
		ep, _ := l.graph.FindEndpoint(id)
		end.Endpoint, end.Node = id, ep.Node
	}
	return party{name: end.String(), ends: []End{end}}
}
