package chains

import (
	"fmt"
	"slices"
)

// input makes the chain that packets to the node enter.
func (b *static) input() {
	opened := "-m connmark ! --mark " + equals(b.c.Marks.turned(), b.c.Marks.turned()) + " -m conntrack --ctdir REPLY -j RETURN"
	rules := slices.Concat([]string{"! " + b.in + " -j RETURN", ifSources(b, isStray(b)[1:]+" -g "+b.name("lone-in")), "-j MARK --set-xmark " + equals(0, b.mask)}, b.discovery(),
		[]string{b.routed(), b.spoofed(""), when(!b.c.AllowEncap, "! -p tcp -j "+b.name("encap"))})
	if b.c.DropToHost {
		// Flows that the node has opened pass. Flows whose first packet on record was an answer of the node do not; see output.
		b.chain("INPUT", append(rules, b.errors()[0], opened, "-j DROP")...)
		return
	}
	rules = slices.Concat(rules, []string{b.fast()}, b.errors(), []string{opened}, b.dubious(), []string{b.revoked()},
		b.judged(b.in, b.sets.Egress, "src", "eg"))
	b.chain("INPUT", append(rules, "-g "+b.name("allow"))...)
}

// foreign makes the chain for packets from a pod whose source is not an address of the pod. They are dropped before routing: the node
// would send errors about them (hops used up, no such address, redirects), with data of the pod, to the owner of the source address.
// Listener and neighbour discovery may have a link-local or unspecified source; it is not forwarded.
func foreign(b *static) {
	if b.c.Family == 4 {
		b.chain("foreign", exceptSources(b))
		return
	}
	var rules []string
	for _, typ := range discoveryTypes {
		for _, to := range linkPrefixes {
			rules = append(rules, fmt.Sprintf("-d %s -p ipv6-icmp -m icmp6 --icmpv6-type %d -j RETURN", to, typ))
		}
	}
	b.chain("link", append(rules, "-j "+b.name(DropsSpoofed))...)
	b.chain("foreign", "-s fe80::/10 -g "+b.name("link"), "-s ::/128 -g "+b.name("link"), exceptSources(b))
}

// bounced drops the errors that the node's kernel sends about packets which no rule has seen: IPv6 hop-by-hop options that it refuses,
// and datagrams that it could not reassemble in time. A pod may have sent such a packet with another's address as the source, so that
// the error would carry its data to the owner. It also drops errors about IPv4 options that the kernel cannot read: they go back along
// the source route in the packet, if there is one, even if the node follows no source routes (__ip_options_echo).
func bounced(b *static) []string {
	to := " -j " + b.name(DropsBounced)
	return []string{
		b.only(4, "-p icmp -m icmp --icmp-type 11/1"+to),
		b.only(4, "-p icmp -m icmp --icmp-type 12"+to),
		b.only(6, "-p ipv6-icmp -m icmp6 --icmpv6-type 3/1"+to),
		b.only(6, "-p ipv6-icmp -m icmp6 --icmpv6-type 4 -m bpf --bytecode "+quoted(quotesHopByHop())+to),
	}
}

// linkPrefixes are the destinations of listener and neighbour discovery.
var linkPrefixes = []string{"fe80::/10", "ff02::/16"}

// discoveryTypes are the ICMPv6 types of listener and neighbour discovery.
var discoveryTypes = []int{130, 131, 132, 133, 135, 136, 143}

// discovery lets listener and neighbour discovery pass from any source, the unspecified address included. The chain marks such
// messages and returns, so that the depth of chains between the hook and a slot does not grow.
func (b *static) discovery() []string {
	if b.c.Family == 4 {
		return nil
	}
	var types []string
	for _, typ := range discoveryTypes {
		types = append(types, fmt.Sprintf("-p ipv6-icmp -m icmp6 --icmpv6-type %d -j MARK --set-xmark %s", typ, equals(b.allow, b.mask)))
	}
	b.chain("nd", types...)
	b.chain("clean", "-j MARK --set-xmark "+equals(0, b.mask))
	return []string{
		"-p ipv6-icmp -d fe80::/10 -j " + b.name("nd"),
		"-p ipv6-icmp -d ff02::/16 -j " + b.name("nd"),
		"-p ipv6-icmp -m mark --mark " + equals(b.allow, b.mask) + " -g " + b.name("clean"),
	}
}

// output makes the chain that packets of the node enter: they may reach every pod that is ready.
func (b *static) output() {
	turned := equals(b.c.Marks.turned(), b.c.Marks.turned())
	b.chain("OUTPUT", append(bounced(b),
		"! "+b.out+" -j RETURN",
		b.only(4, "-d 224.0.0.0/4 -j RETURN"),
		b.only(4, "-d 255.255.255.255/32 -j RETURN"),
		b.only(6, "-d fe80::/10 -j RETURN"),
		b.only(6, "-d ff00::/8 -j RETURN"),
		b.out+" -m set ! --match-set "+b.sets.Own+" dst,dst -j "+orSourcesDrop(b, "reached"),
		// Only a SYN opens a TCP flow: for any other packet the pod is the opener, and this is an answer (D-20).
		"-p tcp -m tcp ! --syn -m conntrack --ctstate NEW -j CONNMARK --set-xmark "+turned)...)
}
