package chains

import (
	"fmt"
	"strings"
)

// verdicts are the chains that slots lead to, and those after both ends have judged.
func (b *static) verdicts() {
	b.chain("ok", "-j MARK --set-xmark "+equals(b.allow, b.allow))
	b.chain("allow",
		b.c.copied(EventAllowed, unjudged(b.c.Marks)),
		b.c.copied(EventAllowedAgain, "-m connmark ! --mark "+equals(0, b.generation)),
		"-j MARK --set-xmark "+equals(0, b.mask),
		b.icmp()+" -m conntrack --ctstate RELATED -j RETURN", // its flow is that of the packet it quotes
		"-j CONNMARK --set-xmark "+b.stamp.String())
	b.deny()
	b.chain("revoked", b.end()...)
	// Packets of the node to a Service get to a pod's interface after OUTPUT.
	b.chain("translated", b.out+" -m set ! --match-set "+b.sets.Own+" dst,dst"+notSources(b, "dst")+" -j DROP")
	b.chain("ended", "-j DROP") // nothing in table filter has reset it
}

// The chains by which slots of each direction find the class of the other end.
const (
	classIngress = "class-in"
	classEgress  = "class-eg"
)

// classes makes them, and the chain by which slots of ingress judge a packet as one of the node, whose address will be its source.
func (b *static) classes() error {
	find := func(opens, answers string) []string {
		against := b.c.Marks.against()
		return []string{
			"-m mark --mark " + equals(0, against) + " -j SET --map-set " + b.sets.Class + " " + opens + " --map-mark",
			"-m mark --mark " + equals(against, against) + " -j SET --map-set " + b.sets.Class + " " + answers + " --map-mark",
		}
	}
	b.chain(classEgress, find("dst", "src")...)
	ingress := find("src", "dst")
	if b.c.Masquerade.Mark == 0 {
		b.chain(classIngress, ingress...)
		return nil
	}
	// Before and after the source was replaced in conntrack's memory: the packet that begins a flow, and others.
	masquerade, node := equals(b.c.Masquerade.Mark, b.c.Masquerade.Mark), " -j "+b.name("node")
	b.chain(classIngress, append(ingress, "-m mark --mark "+masquerade+node, "-m conntrack --ctstate SNAT"+node)...)
	class, err := b.c.Marks.Class(b.c.Masquerade.Class)
	b.chain("node", "-j MARK --set-xmark "+class.String())
	return err
}

// unjudged matches packets of flows that policy has not allowed before, or that no flow is known of.
func unjudged(m Marks) string { return "-m connmark --mark " + equals(0, m.generation()) }

// deny says what a slot's denial means.
func (b *static) deny() {
	rules := []string{
		// A pod to itself (D-16).
		b.in + " " + b.out + " -m set --match-set " + b.sets.Own + " src,src -m set --match-set " + b.sets.Own + " src,dst -j MARK --set-xmark " +
			equals(b.allow, b.allow),
		b.in + " " + b.out + " -m mark --mark " + equals(b.allow, b.allow) + " -j RETURN",
	}
	if b.c.MidFlow == MidFlowAnswer { // once more, as the answer that it may be: as if allowed, so far
		rules = append(rules,
			"-p tcp -m tcp ! --syn -m conntrack --ctstate NEW -m connmark --mark "+equals(0, b.generation|b.c.Marks.turned())+
				" -j MARK --set-xmark "+equals(b.allow|b.midflow, b.allow|b.midflow),
			"-m mark --mark "+equals(b.midflow, b.midflow)+" -j RETURN")
	}
	rules = append(rules,
		b.c.copied(EventDenied, unjudged(b.c.Marks)),
		b.icmp()+" -m conntrack --ctstate RELATED -j DROP", // and its flow goes on
		unjudged(b.c.Marks)+" -j DROP",
		b.c.copied(EventRevoked, ""),
		"-j CONNMARK --set-xmark "+equals(b.stamp.Value|b.midflow, b.stamp.Mask))
	b.chain("deny", append(rules, b.end()...)...)
}

// end is the end of flows that were allowed before: TCP is reset, by table filter towards the sender, and towards the other end
// by who listens to the group.
func (b *static) end() []string {
	return []string{
		when(b.c.Resets != 0, fmt.Sprintf("-p tcp -j NFLOG --nflog-group %d --nflog-size 128", b.c.Resets)),
		"-p tcp -j MARK --set-xmark " + equals(b.midflow, b.mask),
		"-p tcp -j ACCEPT",
		"-j DROP",
	}
}

// filterChains makes the chains of table filter. Policy is judged in mangle, and each flow that it allows there has a generation in its
// mark. So a flow without one has passed by, because somebody has flushed FORWARD of mangle, put a rule before ours, or had a chain
// accept. What mangle lets pass without a mark is left out: ICMP errors, which are no flow's, and answers to the node.
func filterChains(b *static) {
	b.chain("reset", "-p tcp -m mark --mark "+equals(b.midflow, b.mask)+" -j REJECT --reject-with tcp-reset")
	const flow = " -m conntrack --ctstate NEW,ESTABLISHED"
	b.chain("unjudged",
		b.out+flow+" -j DROP",
		b.in+" -m connmark ! --mark "+equals(b.c.Marks.turned(), b.c.Marks.turned())+" -m conntrack --ctdir REPLY -j RETURN",
		b.in+flow+" -j DROP")
}

// packets are the chains that look at the packet alone.
func (b *static) packets() {
	if !b.c.AllowEncap {
		rules := []string{"-p 4 -j DROP", "-p 41 -j DROP", "-p 47 -j DROP"}
		for _, port := range b.c.Tunnels {
			rules = append(rules, fmt.Sprintf("-p udp -m udp --dport %d -j DROP", port))
		}
		for _, port := range b.c.Tunnels { // before translation
			rules = append(rules, fmt.Sprintf("-p udp -m conntrack --ctorigdstport %d --ctdir ORIGINAL -j DROP", port))
		}
		b.chain("encap", rules...)
	}
	from, to := quotesOwn(b.c.Family)
	b.chain("error",
		b.in+" -m bpf --bytecode "+quoted(from)+" -j RETURN",
		b.in+" -j DROP",
		"-m bpf --bytecode "+quoted(to)+" -j RETURN",
		"-j DROP")
	// An ICMP message of no flow is judged as what it is. So is UDP-Lite: conntrack computes its checksum as that of UDP
	// (nf_conntrack_proto_udp.c, udplite_error), and finds valid packets invalid. So are GRE, of which it knows no version but two
	// (gre_pkt_to_tuple), and DCCP, which newer kernels do not follow. Of other protocols malformed fragments of IPv6 are invalid.
	b.chain("unread", b.icmp()+" -j RETURN", "-p udplite -j RETURN", "-p 47 -j RETURN", "-p 33 -j RETURN", "-j "+b.name(DropsInvalid))
	b.chain("odd",
		b.only(6, "-p 51 -j DROP"),
		"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK NONE -j DROP",
		"-p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j DROP",
		"-p tcp -m tcp --tcp-flags SYN,RST SYN,RST -j DROP")
}

func quoted(program []instruction) string {
	var s strings.Builder
	fmt.Fprintf(&s, `"%d`, len(program))
	for _, i := range program {
		fmt.Fprintf(&s, ",%d %d %d %d", i.code, i.yes, i.no, i.k)
	}
	return s.String() + `"`
}
