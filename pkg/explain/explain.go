package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Request asks about one flow.
type Request struct {
	Src, Dst           string // a pod "namespace/name", or an address
	Port               uint16 // destination port, for protocols with ports
	SrcPort            uint16
	Protocol           uint8
	ICMPType, ICMPCode uint8
	IPv6               bool // prefer IPv6 if both ends are pods with both families
}

// Result is the answer.
type Result struct {
	Packet  model.Packet
	Src     End
	Dst     End
	Allow   bool
	Egress  *Trace // of the source; nil: the source is no pod, nothing judges it
	Ingress *Trace // of the destination; nil: it is no pod, or the traffic is the pod's own or its node's
	Note    string // why a side is not judged; empty if both are
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

// State is a datastore to explain: everything that is in it, as if every pod were local.
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
				for _, a := range u.Service.Addrs {
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
	s.judge(res)
	return res, nil
}

func (s *State) judge(res *Result) {
	res.Allow = true
	src, dst := res.Src, res.Dst
	switch {
	case src.IsPod() && src.Endpoint == dst.Endpoint:
		res.Note = "a pod may always talk to itself"
		return
	case src.IsPod() && !dst.IsPod():
		res.Note = "the destination is no pod: only the source's egress is judged"
	case !src.IsPod() && src.Node != "" && src.Node == dst.Node:
		res.Note = "a node may always talk to its own pods"
		return
	case !src.IsPod():
		res.Note = "the source is no pod: only the destination's ingress is judged"
	}
	if src.IsPod() {
		if ep, ok := s.graph.LocalEndpoint(src.Endpoint); ok {
			t := Walk(ep.Egress, res.Packet, s.graph)
			res.Egress, res.Allow = &t, res.Allow && t.Verdict.Allow
		}
	}
	if dst.IsPod() {
		if ep, ok := s.graph.LocalEndpoint(dst.Endpoint); ok {
			t := Walk(ep.Ingress, res.Packet, s.graph)
			res.Ingress, res.Allow = &t, res.Allow && t.Verdict.Allow
		}
	}
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
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		addr = addr.Unmap().WithZone("")
		end := End{Addr: addr, Node: s.nodes[addr]}
		if id, ok := s.graph.EndpointByAddr(addr); ok {
			ep, _ := s.graph.FindEndpoint(id)
			end.Endpoint, end.Node = id, ep.Node
		}
		return []End{end}, nil
	}
	ns, pod, ok := strings.Cut(name, "/")
	if !ok {
		ns, pod = "default", name
	}
	id := model.EndpointID{Namespace: ns, Name: pod}
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
	return strings.Join(list[:min(len(list), 3)], ", ")
}

// ParseRequest reads SRC and DST:PORT/PROTO.
func ParseRequest(src, dst string) (Request, error) {
	r, err := ParseDestination(dst)
	if err == nil && (src == "" || r.Dst == "") {
		err = errors.New("source and destination are pods, namespace/name, or addresses; one is empty")
	}
	r.Src = src
	return r, err
}

// ParseDestination reads DST:PORT/PROTO: "shop/db:5432/tcp", "[fd00::1]:53/udp", "10.0.0.1/icmp:8:0" or
// "10.0.0.1/icmp", "shop/db/47". The protocol defaults to tcp; protocols without ports take no port.
func ParseDestination(text string) (Request, error) {
	r := Request{Protocol: model.ProtoTCP}
	rest := text
	if i := protoAt(rest); i >= 0 {
		if err := r.setProtocol(rest[i+1:]); err != nil {
			return r, fmt.Errorf("%q: %w", text, err)
		}
		rest = rest[:i]
	}
	if !model.HasPorts(r.Protocol) {
		r.Dst = rest
		return r, nil
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 || strings.HasSuffix(rest, "]") {
		return r, fmt.Errorf("%q: want DST:PORT/PROTO, as in shop/db:5432/tcp", text)
	}
	port, err := strconv.ParseUint(rest[i+1:], 10, 16)
	if err != nil {
		return r, fmt.Errorf("%q: port %q is not a number from 0 to 65535", text, rest[i+1:])
	}
	r.Dst, r.Port = rest[:i], uint16(port)
	return r, nil
}

// protoAt finds the slash before the protocol: the last one, if what follows is a protocol. Without a port before it,
// "shop/db" must stay a pod.
func protoAt(text string) int {
	i := strings.LastIndexByte(text, '/')
	if i < 0 {
		return -1
	}
	name, _, _ := strings.Cut(text[i+1:], ":")
	if _, err := protocolNumber(name); err == nil {
		return i
	}
	if strings.ContainsAny(text[:i], ":/") && !strings.Contains(text[i+1:], ":") {
		return i // not a protocol, and meant to be one: let it be reported
	}
	return -1
}

func protocolNumber(name string) (uint8, error) {
	switch strings.ToLower(name) {
	case "tcp":
		return model.ProtoTCP, nil
	case "udp":
		return model.ProtoUDP, nil
	case "sctp":
		return model.ProtoSCTP, nil
	case "icmp":
		return model.ProtoICMP, nil
	case "icmpv6":
		return model.ProtoICMPv6, nil
	case "udplite":
		return model.ProtoUDPLite, nil
	}
	n, err := strconv.ParseUint(name, 10, 8)
	if err != nil || n == 0 {
		return 0, errors.New("protocol is tcp, udp, sctp, icmp, icmpv6, udplite or a number from 1 to 255")
	}
	return uint8(n), nil
}

func (r *Request) setProtocol(text string) error {
	name, icmp, hasICMP := strings.Cut(text, ":")
	n, err := protocolNumber(name)
	if err != nil {
		return err
	}
	r.Protocol = n
	r.IPv6 = n == model.ProtoICMPv6
	switch {
	case n == model.ProtoICMP:
		r.ICMPType = 8
	case n == model.ProtoICMPv6:
		r.ICMPType = 128
	case hasICMP:
		return fmt.Errorf("%s has no type and code", name)
	}
	if !hasICMP {
		return nil
	}
	typ, code, hasCode := strings.Cut(icmp, ":")
	t, err := strconv.ParseUint(typ, 10, 8)
	if err != nil {
		return fmt.Errorf("ICMP type %q is not a number from 0 to 255", typ)
	}
	r.ICMPType = uint8(t)
	if hasCode {
		c, err := strconv.ParseUint(code, 10, 8)
		if err != nil {
			return fmt.Errorf("ICMP code %q is not a number from 0 to 255", code)
		}
		r.ICMPCode = uint8(c)
	}
	return nil
}
