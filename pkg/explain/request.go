package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

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

// Ends are the pods and addresses the request names: what a State must know all about to answer it.
func (r Request) Ends() (pods []model.EndpointID, addrs []netip.Addr) {
	for _, name := range []string{r.Src, r.Dst} {
		if id, addr := parseEnd(name); addr.IsValid() {
			addrs = append(addrs, addr)
		} else {
			pods = append(pods, id)
		}
	}
	return pods, addrs
}

// parseEnd reads an address, or else a pod: namespace/name or a name in the namespace default.
func parseEnd(name string) (pod model.EndpointID, addr netip.Addr) {
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return pod, addr.Unmap().WithZone("")
	}
	if ns, pod, ok := strings.Cut(name, "/"); ok {
		return model.EndpointID{Namespace: ns, Name: pod}, addr
	}
	return model.EndpointID{Namespace: "default", Name: name}, addr
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
		if _, err := netip.ParseAddr(strings.Trim(rest, "[]")); err != nil && strings.Contains(rest, ":") {
			return r, fmt.Errorf("%q: %s has no ports; want DST/PROTO, as in shop/db/icmp", text, ProtocolName(r.Protocol))
		}
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
