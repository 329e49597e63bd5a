package chains

import "slices"

// host are the chains that packets to the node and of the node enter.
type host struct {
	t         *terms
	flows     *flows
	addresses *addresses
	checks    *checks
	judgement *judgement
	strays    *strays
	drop      bool // packets of pods, see Config.DropToHost
}

// chains makes them, and those that they lead to.
func (h *host) chains() []Chain {
	return slices.Concat(h.discoveryChains(), []Chain{h.input(), h.output()})
}

// input makes the chain that packets to the node enter.
func (h *host) input() Chain {
	t := h.t
	rules := slices.Concat([]string{h.checks.others("! " + t.in), h.strays.judged("", "lone-in"), t.clear()}, h.discovery(),
		[]string{h.checks.routed(), h.addresses.spoofed(""), h.checks.encap("")})
	if h.drop {
		return t.chain("INPUT", append(rules, h.checks.encapBefore(""), h.checks.quotes(), h.flows.answered(), "-j DROP")...)
	}
	return t.chain("INPUT", slices.Concat(rules, []string{h.flows.fast(h.flows.known()), h.checks.encapBefore("")}, h.checks.errors(), []string{h.flows.answered()}, h.checks.dubious(),
		[]string{h.flows.revoked() + " -g " + t.name("revoked")}, h.judgement.by(EgressSlots, t.in, "src"), []string{"-g " + t.name("allow")})...)
}

// discovery lets listener and neighbour discovery pass from any source, the unspecified address included. The chain marks such
// messages and returns, so that the depth of chains between the hook and a slot does not grow.
func (h *host) discovery() (rules []string) {
	if h.t.family == 4 {
		return nil
	}
	for _, to := range linkPrefixes {
		rules = append(rules, "-p ipv6-icmp -d "+to+" -j "+h.t.name("nd"))
	}
	return append(rules, "-p ipv6-icmp "+h.t.marked(h.t.marks.allow(), h.t.marks.mask)+" -g "+h.t.name("clean"))
}

// discoveryChains makes the chains that discovery leads to.
func (h *host) discoveryChains() []Chain {
	if h.t.family == 4 {
		return nil
	}
	var types []string
	for _, typ := range discoveryTypes {
		types = append(types, discovery(typ)+" "+h.t.mark(h.t.marks.allow(), h.t.marks.mask))
	}
	return []Chain{h.t.chain("nd", types...), h.t.chain("clean", h.t.clear())}
}

// output makes the chain that packets of the node enter: they may reach every pod that is ready.
func (h *host) output() Chain {
	t := h.t
	return t.chain("OUTPUT", append(h.bounced(),
		"! "+t.out+" -j RETURN",
		t.only(4, "-d 224.0.0.0/4 -j RETURN"),
		t.only(4, "-d 255.255.255.255/32 -j RETURN"),
		t.only(6, "-d fe80::/10 -j RETURN"),
		t.only(6, "-d ff00::/8 -j RETURN"),
		h.addresses.unreachable(),
		// Only a SYN opens a TCP flow: for any other packet the pod is the opener, and this is an answer (D-20).
		"-p tcp -m tcp ! --syn -m conntrack --ctstate NEW "+setConnmark(h.flows.turn()))...)
}

// bounced drops the errors that the node's kernel sends about packets which no rule has seen: IPv6 hop-by-hop options that it refuses,
// and datagrams that it could not reassemble in time. A pod may have sent such a packet with another's address as the source, so that
// the error would carry its data to the owner. It also drops errors about IPv4 options that the kernel cannot read: they go back along
// the source route in the packet, if there is one, even if the node follows no source routes (__ip_options_echo).
func (h *host) bounced() []string {
	to := " -j " + h.t.name(DropsBounced)
	return []string{
		h.t.only(4, "-p icmp -m icmp --icmp-type 11/1"+to),
		h.t.only(4, "-p icmp -m icmp --icmp-type 12"+to),
		h.t.only(6, "-p ipv6-icmp -m icmp6 --icmpv6-type 3/1"+to),
		h.t.only(6, "-p ipv6-icmp -m icmp6 --icmpv6-type 4 -m bpf --bytecode "+bytecode(quotesHopByHop())+to),
	}
}
