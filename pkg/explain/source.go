package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// furtherSource is a pod as the sender of a packet whose source is none of its own addresses (semantics §15). The error says why
// the node drops such a packet before policy.
func (l lookup) furtherSource(pod End) (End, error) {
	addr := l.r.SourceAddr
	if !pod.IsPod() {
		return End{}, fmt.Errorf("only pods have further sources, and %s is none", pod)
	}
	ep, _ := l.graph.FindEndpoint(pod.Endpoint)
	if slices.Contains(ep.Addrs, addr) {
		return End{Addr: addr, Endpoint: pod.Endpoint, Node: pod.Node}, nil
	}
	dropped := func(format string, args ...any) (End, error) {
		return End{}, fmt.Errorf("packets of %s from %s are dropped as spoofed: %s", pod.Endpoint, addr, fmt.Sprintf(format, args...))
	}
	owner := l.address(addr).ends[0]
	switch {
	case !slices.ContainsFunc(ep.Sources, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return dropped("the pod lists no further source with that address, or its agent runs without --workload-source-spoofing Any")
	case slices.ContainsFunc(never, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return dropped("no packet of a pod may be from there, whatever it lists")
	case owner.IsPod() || owner.Node != "":
		return dropped("the address is that of %s", owner.name())
	}
	if cluster, _ := l.graph.ServicesByAddr(addr); len(cluster) > 0 {
		return dropped("it is the cluster address of Service %s", cluster[0])
	}
	return End{Addr: addr, Endpoint: pod.Endpoint, Node: pod.Node, own: pod.Addr}, nil
}

// never are prefixes from which no packet of a pod may be, whatever it lists.
var never = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/96"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// egressPacket is a packet as egress policy judges it: from a further source, as any other of the pod.
func egressPacket(src End, p model.Packet) model.Packet {
	if src.own.IsValid() {
		p.Src = src.own
	}
	return p
}
