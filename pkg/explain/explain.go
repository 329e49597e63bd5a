package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Result is the answer.
type Result struct {
	Packet  model.Packet
	Src     End
	Dst     End
	Allow   bool
	Egress  *Trace // of the source; nil: the source is no pod, nothing judges it
	Ingress *Trace // of the destination; nil: it is no pod, or the traffic is the pod's own or its node's
	Note    string // why a side is not judged; empty if both are
	Caveat  string // what else than policy may stop the flow
}

// End is one end of the flow.
type End struct {
	Addr     netip.Addr
	Endpoint model.EndpointID // zero: no pod
	Node     string           // of the pod, or the node whose own address it is
}

// IsPod reports whether the end is a pod.
func (e End) IsPod() bool { return e.Endpoint != model.EndpointID{} }

func (e End) String() string {
	switch {
	case e.IsPod():
		return fmt.Sprintf("%s (%s)", e.Endpoint, e.Addr)
	case e.Node != "":
		return fmt.Sprintf("node %s (%s)", e.Node, e.Addr)
	}
	return e.Addr.String()
}

// State is a datastore to explain, or the part of one that is around the ends of a request (calc.Graph.Around), as if
// every pod were local.
type State struct {
	graph *calc.Graph
	nodes map[netip.Addr]string
	vips  map[netip.Addr]model.ServiceKey
	slice []model.EndpointSlice
}

// NewState takes the last update of every object.
func NewState(updates []model.Update) *State {
	s := &State{graph: calc.New(""), nodes: map[netip.Addr]string{}, vips: map[netip.Addr]model.ServiceKey{}}
	for _, u := range updates {
		switch u := u.(type) {
		case model.NodeUpdate:
			if u.Node != nil {
				for _, a := range u.Node.Addrs {
					s.nodes[a] = u.Name
				}
			}
		case model.ServiceUpdate:
			if u.Service != nil {
				for _, a := range u.Service.Addrs() {
					s.vips[a] = u.Key
				}
			}
		case model.EndpointSliceUpdate:
			if u.Slice != nil {
				s.slice = append(s.slice, *u.Slice)
			}
		}
	}
	s.graph.Apply(updates)
	s.graph.Apply([]model.Update{model.InSync{}})
	s.graph.Flush()
	return s
}

// Explain answers one request. An error says what is wrong with it.
func (s *State) Explain(r Request) (*Result, error) {
	src, dst, err := s.ends(r)
	if err != nil {
		return nil, err
	}
	res := &Result{Src: src, Dst: dst, Packet: model.Packet{
		Src: src.Addr, Dst: dst.Addr, Protocol: r.Protocol,
		ICMPType: r.ICMPType, ICMPCode: r.ICMPCode,
	}}
	if model.HasPorts(r.Protocol) {
		res.Packet.SrcPort, res.Packet.DstPort = r.SrcPort, r.Port
	}
	if key, ok := s.vips[dst.Addr]; ok && !dst.IsPod() {
		return nil, fmt.Errorf("%s is an address of Service %s: egress is judged on the backend kube-proxy picks; ask for a backend: %s",
			dst.Addr, key, s.backends(key))
	}
	if !src.IsPod() && !dst.IsPod() {
		return nil, fmt.Errorf("neither %s nor %s is a pod: no policy judges this flow", src, dst)
	}
	if err := s.judge(res); err != nil {
		return nil, err
	}
	return res, nil
}

func (s *State) judge(res *Result) error {
	res.Allow = true
	src, dst := res.Src, res.Dst
	switch {
	case src.IsPod() && src.Endpoint == dst.Endpoint:
		res.Note = "a pod may always talk to itself"
		return nil
	case src.IsPod() && !dst.IsPod() && dst.Node != "" && dst.Node == src.Node:
		res.Note = "the destination is the pod's own node: after its egress only --default-endpoint-to-host-action is asked"
	case src.IsPod() && !dst.IsPod():
		res.Note = "the destination is no pod: only the source's egress is judged"
	case !src.IsPod() && src.Node != "" && src.Node == dst.Node:
		res.Note = "a node may always talk to its own pods"
		return nil
	case !src.IsPod():
		res.Note = "the source is no pod: only the destination's ingress is judged"
	}
	var err error
	if src.IsPod() {
		if isTunnel(res.Packet) {
			res.Caveat = "the node drops tunnels from pods before policy, unless it runs with --allow-encap-from-workloads"
		}
		if res.Egress, err = s.walk(src.Endpoint, model.Egress, res.Packet); err != nil {
			return err
		}
		res.Allow = res.Egress.Verdict.Allow
	}
	if dst.IsPod() {
		if res.Ingress, err = s.walk(dst.Endpoint, model.Ingress, res.Packet); err != nil {
			return err
		}
		res.Allow = res.Allow && res.Ingress.Verdict.Allow
	}
	return nil
}

// isTunnel reports whether the packet is IP-in-IP, or VXLAN at its usual port.
func isTunnel(p model.Packet) bool {
	const ipInIP, vxlan = 4, 4789
	return p.Protocol == ipInIP || p.Protocol == model.ProtoUDP && p.DstPort == vxlan
}

func (s *State) walk(id model.EndpointID, d model.Direction, p model.Packet) (*Trace, error) {
	ep, ok := s.graph.LocalEndpoint(id)
	if !ok {
		return nil, fmt.Errorf("no policy was calculated for %s", id)
	}
	policy := ep.Ingress
	if d == model.Egress {
		policy = ep.Egress
	}
	t := Walk(policy, p, s.graph)
	return &t, nil
}

// ends resolves both ends in one family.
func (s *State) ends(r Request) (src, dst End, err error) {
	srcs, err := s.candidates(r.Src)
	if err != nil {
		return src, dst, err
	}
	dsts, err := s.candidates(r.Dst)
	if err != nil {
		return src, dst, err
	}
	for _, v6 := range []bool{r.IPv6, !r.IPv6} {
		a, okA := ofFamily(srcs, v6)
		b, okB := ofFamily(dsts, v6)
		if okA && okB {
			return a, b, nil
		}
	}
	return src, dst, fmt.Errorf("%s and %s have no address family in common", r.Src, r.Dst)
}

func ofFamily(ends []End, v6 bool) (End, bool) {
	for _, e := range ends {
		if e.Addr.Is6() == v6 {
			return e, true
		}
	}
	return End{}, false
}

// candidates are the ends a name or address can mean, one for each address.
func (s *State) candidates(name string) ([]End, error) {
	id, addr := parseEnd(name)
	if addr.IsValid() {
		end := End{Addr: addr, Node: s.nodes[addr]}
		if id, ok := s.graph.EndpointByAddr(addr); ok {
			ep, _ := s.graph.FindEndpoint(id)
			end.Endpoint, end.Node = id, ep.Node
		}
		return []End{end}, nil
	}
	ep, found := s.graph.FindEndpoint(id)
	if !found {
		return nil, fmt.Errorf("no pod %s with an address of its own (host-network and finished pods have none); give namespace/name or an address", id)
	}
	var ends []End
	for _, a := range ep.Addrs {
		ends = append(ends, End{Addr: a, Endpoint: id, Node: ep.Node})
	}
	return ends, nil
}

func (s *State) backends(key model.ServiceKey) string {
	var list []string
	for _, slice := range s.slice {
		if slice.Service != key {
			continue
		}
		for _, a := range slice.Addrs {
			for _, p := range slice.Ports {
				list = append(list, fmt.Sprintf("%s/%s", netip.AddrPortFrom(a, p.Port), ProtocolName(p.Protocol)))
			}
		}
	}
	if len(list) == 0 {
		return "it has none"
	}
	slices.Sort(list)
	return strings.Join(list[:min(len(list), 3)], ", ")
}
