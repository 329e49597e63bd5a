package flows

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Filter says which records a subscriber wants: those that fit one value of every field that is not empty.
type Filter struct {
	namespaces []string // of the endpoint that was judged
	pods       []string // the endpoint that was judged: see named
	verdict    string
	direction  string
	peers      []peerFilter
	ports      []uint16 // the destination's
}

// peerFilter is one prefix of addresses, or, if that is not valid, one name.
type peerFilter struct {
	prefix netip.Prefix
	name   string
}

// ParseFilter reads the parameters namespace, pod, verdict, direction, peer and port. All but verdict and direction may
// be there several times. pod and peer are the beginning of a name, or namespace/ and the beginning of a name; peer may
// be an address or a CIDR, too. Other parameters are ignored.
func ParseFilter(v url.Values) (Filter, error) {
	f := Filter{namespaces: v["namespace"], pods: v["pod"], verdict: v.Get("verdict"), direction: v.Get("direction")}
	if !slices.Contains([]string{"", Allow, Deny}, f.verdict) {
		return f, fmt.Errorf("verdict %q: want allow or deny", f.verdict)
	}
	if !slices.Contains([]string{"", Ingress, Egress}, f.direction) {
		return f, fmt.Errorf("direction %q: want ingress or egress", f.direction)
	}
	for _, name := range []string{"namespace", "pod", "peer", "port"} {
		if slices.Contains(v[name], "") {
			return f, fmt.Errorf("%s is empty", name)
		}
	}
	for _, text := range v["peer"] {
		peer, err := parsePeer(text)
		if err != nil {
			return f, err
		}
		f.peers = append(f.peers, peer)
	}
	for _, text := range v["port"] {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return f, fmt.Errorf("port %q: want a number from 1 to 65535", text)
		}
		f.ports = append(f.ports, uint16(port))
	}
	return f, nil
}

// parsePeer reads an address, a CIDR or the beginning of a name. No name begins with an address and a slash: a
// namespace has no dot and no colon.
func parsePeer(text string) (peerFilter, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return peerFilter{prefix: netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen())}, nil
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		return peerFilter{prefix: p.Masked()}, nil
	}
	before, _, slash := strings.Cut(text, "/")
	if _, err := netip.ParseAddr(before); slash && err == nil {
		return peerFilter{}, fmt.Errorf("peer %q: want an address, a CIDR as in 10.0.0.0/8, or the beginning of a name", text)
	}
	return peerFilter{name: text}, nil
}

// Matches reports whether r is wanted.
func (f *Filter) Matches(r *Record) bool {
	if f.verdict != "" && f.verdict != r.Verdict || f.direction != "" && f.direction != r.Direction {
		return false
	}
	namespace, _, _ := strings.Cut(r.Endpoint, "/")
	return (len(f.namespaces) == 0 || slices.Contains(f.namespaces, namespace)) &&
		(len(f.pods) == 0 || slices.ContainsFunc(f.pods, func(p string) bool { return named(r.Endpoint, p) })) &&
		(len(f.ports) == 0 || slices.Contains(f.ports, r.Dst.Port())) &&
		(len(f.peers) == 0 || slices.ContainsFunc(f.peers, func(p peerFilter) bool { return p.matches(r) }))
}

func (p peerFilter) matches(r *Record) bool {
	if p.prefix.IsValid() {
		return p.prefix.Contains(r.Remote())
	}
	return r.Peer != nil && named(r.Peer.Name, p.name)
}

// named reports whether name, which is namespace/name or a node's, begins with wanted. If wanted has no namespace, it
// is compared with the part after the namespace.
func named(name, wanted string) bool {
	if strings.Contains(wanted, "/") {
		return strings.HasPrefix(name, wanted)
	}
	return strings.HasPrefix(name[strings.Index(name, "/")+1:], wanted)
}
