package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// DefaultSourcePort is the source port of a request that does not say one.
const DefaultSourcePort = 40000

// Request asks about the flows from one end to another. It is the text of a person, parsed once and not looked up.
type Request struct {
	Src        string `json:"src"` // see Resolve
	Dst        string `json:"dst"`
	Namespace  string `json:"namespace,omitempty"` // of names without one; empty: default
	Port       uint16 `json:"port,omitempty"`      // destination port, for protocols with ports; 0: see PortName
	PortName   string `json:"portName,omitempty"`  // of the pod or Service; empty, without a Port: every port
	SourcePort uint16 `json:"sourcePort,omitempty"`
	// SourceAddr is the source of the packet if that is a further source of the pod Src, none of its own addresses.
	SourceAddr netip.Addr `json:"sourceAddr,omitzero"`
	Protocol   uint8      `json:"protocol,omitempty"` // 0: not said
	ICMPType   uint8      `json:"icmpType,omitempty"`
	ICMPCode   uint8      `json:"icmpCode,omitempty"`
	IPv6       bool       `json:"ipv6,omitempty"` // over IPv6; else IPv4 is preferred

	// Rules are those of the node of the agent that answers, and NodeAddrs addresses that are its own although no object says so.
	// Who asks leaves them out.
	Rules     NodeRules    `json:"-"`
	NodeAddrs []netip.Addr `json:"-"`
}

// ParseRequest reads SRC and DST[:PORT][/PROTO].
func ParseRequest(src, dst string) (Request, error) {
	if n, err := netip.ParsePrefix(src); err == nil {
		return Request{}, fmt.Errorf("SRC %q is a network: want one address, as in %s, or a pod, a node or a workload such as deploy/NAME", src, n.Addr())
	}
	if n, ok := networkIn(dst); ok {
		return Request{}, fmt.Errorf("DST %q is a network: want one address, as in %s:443/tcp, or a pod, a Service, a node or a workload such as deploy/NAME",
			dst, hostText(n.Addr()))
	}
	r, err := parseDestination(dst)
	if err == nil && (src == "" || r.Dst == "") {
		err = errors.New("source and destination are pods, namespace/name, or addresses; one is empty")
	}
	r.Src = src
	return r, err
}

// parseDestination reads DST[:PORT][/PROTO]: "shop/db:5432/tcp", "shop/db:http", "shop/db", "[fd00::1]:53/udp",
// "10.0.0.1/icmp:8:0" or "10.0.0.1/icmp", "shop/db/47". Protocols without ports take no port.
func parseDestination(text string) (Request, error) {
	r := Request{SourcePort: DefaultSourcePort}
	rest := text
	if i := protoAt(rest); i >= 0 {
		if err := r.setProtocol(rest[i+1:]); err != nil {
			return r, fmt.Errorf("%q: %w", text, err)
		}
		rest = rest[:i]
	}
	r.Dst = rest
	if _, err := netip.ParseAddr(strings.Trim(rest, "[]")); err == nil {
		return r, nil
	}
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return r, nil
	}
	if r.Protocol != 0 && !model.HasPorts(r.Protocol) {
		return r, fmt.Errorf("%q: %s has no ports; want DST/PROTO, as in shop/db/icmp", text, ProtocolName(r.Protocol))
	}
	r.Dst = rest[:i]
	if err := r.setPort(rest[i+1:]); err != nil {
		return r, fmt.Errorf("%q: %w", text, err)
	}
	return r, nil
}

// networkIn finds a network that is given as a destination: "10.0.0.0/8", "10.0.0.0/8:443/tcp". The number of a protocol may follow an
// address, too, as in "10.0.0.1/47": it is the length of a prefix if that leaves no bit of the address out, or a port or a protocol follows it.
func networkIn(text string) (netip.Prefix, bool) {
	before, after, _ := strings.Cut(text, "/")
	addr, ok := parseAddr(before)
	length := after
	if i := strings.IndexAny(after, ":/"); i >= 0 {
		length = after[:i]
	}
	n, err := strconv.ParseUint(length, 10, 8)
	if !ok || err != nil || int(n) > addr.BitLen() {
		return netip.Prefix{}, false
	}
	network := netip.PrefixFrom(addr, int(n))
	isICMP := n == uint64(model.ProtoICMP) || n == uint64(model.ProtoICMPv6) // a type and code may follow those
	return network, network.Masked() == network || length != after && !isICMP
}

// hostText is an address as a port may follow it.
func hostText(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

// setPort reads a port's number or name.
func (r *Request) setPort(text string) error {
	n, err := strconv.ParseUint(text, 10, 16)
	switch {
	case err == nil && n > 0:
		r.Port = uint16(n)
	case err != nil && isPortName(text):
		r.PortName = text
	default:
		return fmt.Errorf("port %q is neither a number from 1 to 65535 nor the name of a port", text)
	}
	return nil
}

// isPortName reports whether Kubernetes lets a port have the name.
func isPortName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return len(text) <= 63 && strings.ContainsAny(text, letters) && strings.Trim(text, letters+"0123456789-") == ""
}

// protoAt finds the slash before the protocol: the last one, if the text after it is a protocol or is meant to be one.
// The text before it must stay a name: "shop/db", "shop/deploy/web".
func protoAt(text string) int {
	i := strings.LastIndexByte(text, '/')
	if i < 0 {
		return -1
	}
	name, _, _ := strings.Cut(text[i+1:], ":")
	if _, err := protocolNumber(name); err == nil {
		return i
	}
	before, isName := text[:i], !strings.Contains(text[i+1:], ":")
	if isName && strings.Contains(before, ":") {
		return i // after a port: not a protocol, and meant to be one
	}
	if first, second, several := strings.Cut(before, "/"); isName && several && kindOf(first) == "" && kindOf(second) == "" {
		return i
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

// family is the IP version that the request demands; 0: either will do.
func (r Request) family() (int, error) {
	switch {
	case r.SourceAddr.Is4() && (r.IPv6 || r.Protocol == model.ProtoICMPv6), r.SourceAddr.Is6() && r.Protocol == model.ProtoICMP:
		return 0, fmt.Errorf("the source %s is of the other IP version", r.SourceAddr)
	case r.Protocol == model.ProtoICMP && r.IPv6:
		return 0, errors.New("icmp is the ICMP of IPv4; over IPv6 ask for icmpv6")
	case r.Protocol == model.ProtoICMP:
		return 4, nil
	case r.Protocol == model.ProtoICMPv6 || r.IPv6 || r.SourceAddr.Is6():
		return 6, nil
	case r.SourceAddr.IsValid():
		return 4, nil
	}
	return 0, nil
}
