package corpus

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Check is one line of a case's file expect: a packet and what becomes of it.
type Check struct {
	File string // as given to Load
	Line int
	Text string // the line as written

	Packet model.Packet
	// SrcEndpoint and DstEndpoint are the ends that are endpoints: the first one's egress and the second one's ingress
	// policy judge the packet. Nil: the end is a node or an outside address and has no say.
	SrcEndpoint, DstEndpoint *model.EndpointID
	// FurtherSource says that the packet's source is not the endpoint's own (semantics §15).
	FurtherSource bool
	// NodePort says that the outside address Client sends the packet to a NodePort of a node. Packet is what becomes of it: of a
	// masqueraded one the source is the node Masquerade, otherwise Client.
	NodePort   bool
	Client     netip.Addr
	Masquerade string
	// FromHost says that the node of the destination endpoint itself sends the packet.
	FromHost bool

	Allow bool // by both legs
	// Egress and Ingress say more of one leg; nil: not stated.
	Egress, Ingress *Leg
}

// Leg is what a line says of one leg.
type Leg struct {
	By             string   // RuleID.String() of what decides
	Passed, Logged []string // RuleID.String() in order; nil: not stated; empty: none
}

// cluster is what the words of a line refer to.
type cluster struct {
	endpoints map[model.EndpointID]*model.Endpoint
	nodes     map[string]*model.Node
}

func parseChecks(file string, first int, data []byte, updates []model.Update) ([]Check, error) {
	cl := cluster{map[model.EndpointID]*model.Endpoint{}, map[string]*model.Node{}}
	for _, u := range updates {
		switch u := u.(type) {
		case model.EndpointUpdate:
			cl.endpoints[u.ID] = u.Endpoint
		case model.NodeUpdate:
			cl.nodes[u.Name] = u.Node
		}
	}
	var checks []Check
	n := first - 1
	for line := range strings.Lines(string(data)) {
		n++
		text, _, _ := strings.Cut(line, "# ")
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		c, err := cl.check(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		c.File, c.Line, c.Text = file, n, text
		checks = append(checks, c)
	}
	return checks, nil
}

// check reads "SRC -> DST/PROTO allow|deny [egress|ingress ID [passed IDS] [logged IDS]]...".
func (cl cluster) check(text string) (Check, error) {
	f := strings.Fields(text)
	if len(f) < 4 || f[1] != "->" {
		return Check{}, fmt.Errorf("%q is not SRC -> DST allow|deny", text)
	}
	var c Check
	if err := cl.packet(&c, f[0], f[2]); err != nil {
		return c, err
	}
	switch f[3] {
	case "allow":
		c.Allow = true
	case "deny":
	default:
		return c, fmt.Errorf("%q is neither allow nor deny", f[3])
	}
	var leg *Leg
	f = f[4:]
	for ; len(f) >= 2; f = f[2:] {
		switch word := f[0]; {
		case word == "egress" && c.SrcEndpoint != nil:
			leg = &Leg{By: f[1]}
			c.Egress = leg
		case word == "ingress" && c.DstEndpoint != nil:
			leg = &Leg{By: f[1]}
			c.Ingress = leg
		case word == "passed" && leg != nil:
			leg.Passed = idList(f[1])
		case word == "logged" && leg != nil:
			leg.Logged = idList(f[1])
		default:
			return c, fmt.Errorf("unexpected %q", word)
		}
	}
	if len(f) > 0 {
		return c, fmt.Errorf("nothing follows %q", f[0])
	}
	return c, nil
}

// idList: "-" is the empty list.
func idList(text string) []string {
	if text == "-" {
		return []string{}
	}
	return strings.Split(text, ",")
}

// end is one end of a packet as written.
type end struct {
	text string
	addr netip.Addr // of an address, or a pod's further source
	node string     // of host or host=NAME; "" with isHost: the other end's node
	host bool
	id   model.EndpointID // of a pod
	port uint16
	set  bool   // a port is given
	by   string // of an address: the node whose NodePort it sends to, or localNode; "": directly
}

// localNode is the NodePort of the destination's own node that keeps the source: that of a Service with externalTrafficPolicy Local.
const localNode = "local"

func (cl cluster) packet(c *Check, src, dst string) error {
	s, rest, err := parseEnd(src)
	if err != nil {
		return err
	}
	if rest != "" {
		return fmt.Errorf("%q: unexpected %q", src, rest)
	}
	d, rest, err := parseEnd(dst)
	if err != nil {
		return err
	}
	proto, isV6 := strings.CutSuffix(rest, "/v6")
	if err := c.protocol(strings.TrimPrefix(proto, "/"), isV6, s, d); err != nil {
		return fmt.Errorf("%q: %w", dst, err)
	}
	isV6 = isV6 || s.addr.Is6() || d.addr.Is6() || strings.HasPrefix(proto, "/icmpv6:")
	if c.Packet.Src, err = cl.address(s, d, isV6); err != nil {
		return err
	}
	if c.Packet.Dst, err = cl.address(d, s, isV6); err != nil {
		return err
	}
	if s.id.Name != "" {
		c.SrcEndpoint, c.FurtherSource = &s.id, s.addr.IsValid()
	}
	if d.id.Name != "" && d.addr.IsValid() {
		return fmt.Errorf("%q: a further source is no destination", dst)
	}
	if d.id.Name != "" {
		c.DstEndpoint = &d.id
		c.FromHost = s.host && (s.node == "" || s.node == cl.endpoints[d.id].Node)
	}
	return c.nodePort(cl, s, d)
}

// nodePort fills in what is said of a NodePort. Its node may choose another source port, so the line says none.
func (c *Check) nodePort(cl cluster, s, d end) error {
	if d.by != "" {
		return fmt.Errorf("%q: a NodePort stands with the source", d.text)
	}
	if s.by == "" {
		return nil
	}
	if c.DstEndpoint == nil || s.set || c.Packet.Protocol != model.ProtoTCP && c.Packet.Protocol != model.ProtoUDP {
		return fmt.Errorf("%q: by a NodePort TCP or UDP comes to a pod, from no port that is known", s.text)
	}
	c.NodePort, c.Client = true, c.Packet.Src
	if s.by == localNode {
		return nil
	}
	c.Masquerade = s.by
	var err error
	c.Packet.Src, err = cl.address(end{text: s.text, host: true, node: s.by}, d, c.Client.Is6())
	return err
}

// protocol fills in protocol, ports and ICMP fields.
func (c *Check) protocol(text string, isV6 bool, s, d end) error {
	name, arg, hasArg := strings.Cut(text, ":")
	p := &c.Packet
	p.Protocol = protocols[name]
	switch {
	case model.HasPorts(p.Protocol) && !hasArg:
		if !d.set {
			return fmt.Errorf("no destination port")
		}
		p.SrcPort, p.DstPort = 40000, d.port
		if s.set {
			p.SrcPort = s.port
		}
		return nil
	case s.set || d.set:
		return fmt.Errorf("protocol %q has no ports", text)
	case name == "proto" && hasArg:
		n, err := strconv.ParseUint(arg, 10, 8)
		p.Protocol = uint8(n)
		return err
	case name == "udplite" && !hasArg:
		return nil
	case name == "icmp" && !isV6 || name == "icmpv6":
		typ, code, _ := strings.Cut(arg, "/")
		t, err := strconv.ParseUint(typ, 10, 8)
		if err != nil {
			return err
		}
		p.ICMPType = uint8(t)
		if code != "" {
			n, err := strconv.ParseUint(code, 10, 8)
			p.ICMPCode = uint8(n)
			return err
		}
		return nil
	}
	return fmt.Errorf("unknown protocol %q", text)
}

// parseEnd reads "ns/pod", "ns/pod=10.0.0.1" (a further source), "host", "host=node", "10.0.0.1" or "[fd00::1]", each with an
// optional ":port", or an address with "@node", and returns what follows.
func parseEnd(text string) (end, string, error) {
	e := end{text: text}
	rest := text
	if after, ok := strings.CutPrefix(text, "["); ok {
		addr, after, _ := strings.Cut(after, "]")
		a, err := netip.ParseAddr(addr)
		if err != nil {
			return e, "", err
		}
		e.addr, rest = a, after
	} else {
		cut := strings.IndexAny(text+"/", ":/@")
		word := text[:cut]
		if a, err := netip.ParseAddr(word); err == nil {
			e.addr = a
		} else if node, ok := strings.CutPrefix(word, "host"); ok && (node == "" || node[0] == '=') {
			e.host, e.node = true, strings.TrimPrefix(node, "=")
		} else {
			pod := strings.TrimPrefix(text[cut:], "/")
			n := strings.IndexAny(pod+"/", ":/=")
			e.id = model.WorkloadID(word, pod[:n])
			if source, ok := strings.CutPrefix(pod[n:], "="); ok {
				from, rest, err := parseEnd(source)
				from.text, from.id = text, e.id
				return from, rest, err
			}
			cut += 1 + n
		}
		rest = text[min(cut, len(text)):]
	}
	if by, ok := strings.CutPrefix(rest, "@"); ok && e.addr.IsValid() {
		e.by, rest = by, ""
		if by == "" {
			return e, "", fmt.Errorf("%q names no node", text)
		}
	}
	if after, ok := strings.CutPrefix(rest, ":"); ok {
		number, _, _ := strings.Cut(after, "/")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return e, "", fmt.Errorf("port of %q: %w", text, err)
		}
		e.port, e.set = uint16(n), true
		rest = after[len(number):]
	}
	return e, rest, nil
}

// address resolves an end in the wanted family.
func (cl cluster) address(e, other end, isV6 bool) (netip.Addr, error) {
	var addrs []netip.Addr
	switch {
	case e.addr.IsValid():
		addrs = []netip.Addr{e.addr}
	case e.host:
		name := e.node
		if ep := cl.endpoints[other.id]; name == "" && ep != nil {
			name = ep.Node
		}
		if n := cl.nodes[name]; n != nil {
			addrs = n.Addrs
		}
	case cl.endpoints[e.id] != nil:
		addrs = cl.endpoints[e.id].Addrs
	default:
		return netip.Addr{}, fmt.Errorf("%q: no such endpoint", e.text)
	}
	for _, a := range addrs {
		if a.Is6() == isV6 {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%q has no address of the packet's family", e.text)
}
