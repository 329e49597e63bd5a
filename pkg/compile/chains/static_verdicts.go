package chains

import (
	"fmt"
	"strings"
)

// verdicts makes the chains that slots lead to, and those that follow the judgement of both ends.
func (b *static) verdicts() {
	b.chain("ok", "-j MARK --set-xmark "+equals(b.allow, b.allow))
	b.chain("allow",
		b.c.copied(EventAllowed, unjudged(b.c.Marks)),
		b.c.copied(EventAllowedAgain, "-m connmark ! --mark "+equals(0, b.generation)),
		"-j MARK --set-xmark "+equals(0, b.mask),
		b.icmp()+" -m conntrack --ctstate RELATED -j RETURN", // its flow is that of the packet it quotes
		ifSources(b, isLone(b)+" -m conntrack --ctdir REPLY -j CONNMARK --set-xmark "+equals(b.c.Marks.turned(), b.c.Marks.turned())),
		"-j CONNMARK --set-xmark "+b.stamp.String())
	b.deny()
	b.chain("revoked", b.end()...)
	b.chain("leaving",
		ended(b)+" -j DROP", // table filter has not reset it
		// Packets of the node to a Service get to a pod's interface after OUTPUT. Those of other nodes and pods have passed FORWARD.
		b.out+" -m conntrack --ctstate DNAT -m set ! --match-set "+b.sets.Own+" dst,dst -j "+b.name("translated"),
		ifSources(b, "-m mark --mark "+equals(b.allow|b.midflow, b.mask)+" -j MARK --set-xmark "+equals(0, b.mask)))
	b.chain("translated", append(reachable(b), "-j DROP")...)
}

// The chains by which slots of each direction find the class of the other end.
const (
	classIngress = "class-in"
	classEgress  = "class-eg"
)

// classes makes them, and the chain that gives a packet the class of the node, whose address will be its source.
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
	// The first packet of a flow has kube-proxy's mark; of later ones conntrack has the address that answers go to. The state SNAT alone
	// does not say that the address was replaced: conntrack may have replaced only the port, if another flow has the same ends.
	b.chain(classIngress, append(ingress,
		"-m mark --mark "+equals(b.c.Masquerade.Mark, b.c.Masquerade.Mark)+" -j "+b.name("node"),
		"-m conntrack --ctstate SNAT -j "+b.name("masqueraded"))...)
	var masqueraded []string
	for _, a := range b.c.Masquerade.Addrs {
		masqueraded = append(masqueraded, fmt.Sprintf("-m conntrack --ctrepldst %v -g %s", a, b.name("node")))
	}
	b.chain("masqueraded", masqueraded...)
	class, err := b.c.Marks.Class(b.c.Masquerade.Class)
	b.chain("node", "-j MARK --set-xmark "+class.String())
	return err
}

// withoutConnection matches packets that conntrack does not track and those that it finds invalid. No match of connection marks matches
// them, whether it is negated or not.
const withoutConnection = "-m conntrack --ctstate INVALID,UNTRACKED"

// unjudged matches packets of flows that policy has not allowed before.
func unjudged(m Marks) string { return "-m connmark --mark " + equals(0, m.generation()) }

// deny makes the chain for packets that a slot denies.
func (b *static) deny() {
	alone := "-m mark --mark " + equals(b.midflow, b.midflow)
	rules := []string{
		ifSources(b, b.c.copied(EventDenied, alone)),
		ifSources(b, alone+" -j DROP"), // and the flow with these ends goes on: it may be that of others
		// A pod to itself (D-16).
		b.in + " " + b.out + " -m set --match-set " + b.sets.Own + " src,src -m set --match-set " + b.sets.Own + " src,dst -j MARK --set-xmark " +
			equals(b.allow, b.allow),
		b.in + " " + b.out + " -m mark --mark " + equals(b.allow, b.allow) + " -j RETURN",
	}
	if b.c.MidFlow == MidFlowAnswer { // the packet may be an answer: it counts as allowed until it is judged as one
		rules = append(rules,
			"-p tcp -m tcp ! --syn -m conntrack --ctstate NEW -m connmark --mark "+equals(0, b.generation|b.c.Marks.turned())+
				" -j MARK --set-xmark "+equals(b.allow|b.midflow, b.allow|b.midflow),
			"-m mark --mark "+equals(b.midflow, b.midflow)+" -j RETURN")
	}
	rules = append(rules,
		b.c.copied(EventDenied, unjudged(b.c.Marks)),
		b.icmp()+" -m conntrack --ctstate RELATED -j DROP", // and its flow goes on
		unjudged(b.c.Marks)+" -j DROP",
		// These have no connection: no mark says that they were allowed before, and none would have table filter drop them.
		b.c.copied(EventDenied, withoutConnection),
		withoutConnection+" -j DROP",
		ifSources(b, b.c.copied(EventDenied, isLone(b))),
		ifSources(b, isLone(b)+" -j DROP"),
		b.c.copied(EventRevoked, ""),
		"-j CONNMARK --set-xmark "+b.c.Marks.denies(b.stamp).String())
	b.chain("deny", append(rules, b.end()...)...)
}

// end returns the rules that end flows which were allowed before: TCP is reset, by table filter towards the sender, and by the
// listener of the NFLOG group towards the other end.
func (b *static) end() []string {
	return []string{
		when(b.c.Resets != 0, fmt.Sprintf("-p tcp -j NFLOG --nflog-group %d --nflog-size 128", b.c.Resets)),
		"-p tcp -j MARK --set-xmark " + equals(b.midflow, b.mask),
		"-p tcp -j ACCEPT",
		"-j DROP",
	}
}

// filterChains makes the chain of table filter, for packets of flows that policy has not allowed. It resets those of flows that policy
// has come to deny. Packets are judged in mangle, and each flow allowed there has a mark. A flow without one was not judged: somebody has
// flushed FORWARD of mangle, put a rule before ours, or made a chain accept. The packets that mangle lets pass without a mark are left
// out: ICMP errors, which belong to no flow of their own, and answers to the node.
func filterChains(b *static) {
	const flow = " -m conntrack --ctstate NEW,ESTABLISHED"
	b.chain("unjudged",
		ifSources(b, "-m mark --mark "+equals(b.allow|b.midflow, b.mask)+" -j RETURN"),
		"-p tcp "+ended(b)+" -j REJECT --reject-with tcp-reset",
		b.out+flow+" -j DROP",
		b.in+" -m connmark ! --mark "+equals(b.c.Marks.turned(), b.c.Marks.turned())+" -m conntrack --ctdir REPLY -j RETURN",
		b.in+flow+" -j DROP")
}

// packets makes the chains that look at the packet alone.
func (b *static) packets() {
	if !b.c.AllowEncap {
		rules := []string{"-p 4 -j DROP", "-p 41 -j DROP", "-p 47 -j DROP"}
		for _, port := range b.c.Tunnels {
			rules = append(rules, fmt.Sprintf("-p udp -m udp --dport %d -j DROP", port))
		}
		var before []string // rules about the port before translation
		for _, port := range b.c.Tunnels {
			before = append(before, fmt.Sprintf("-p udp -m conntrack --ctorigdstport %d --ctdir ORIGINAL -j DROP", port))
		}
		if len(before) > 0 { // a packet that is not translated takes one match of conntrack's data, not one for each port
			b.chain("encap-nat", before...)
			rules = append(rules, "-p udp -m conntrack --ctstate DNAT -j "+b.name("encap-nat"))
		}
		b.chain("encap", rules...)
	}
	from, to := quotesOwn(b.c.Family)
	b.chain("error",
		b.in+" -m bpf --bytecode "+quoted(from)+" -j RETURN",
		b.in+" -j DROP",
		"-m bpf --bytecode "+quoted(to)+" -j RETURN",
		"-j DROP")
	// These packets are judged although conntrack finds them invalid: ICMP messages of no flow; UDP-Lite, whose checksum it computes as
	// that of UDP (nf_conntrack_proto_udp.c, udplite_error); GRE, of which it knows two versions only (gre_pkt_to_tuple); and DCCP,
	// which newer kernels do not follow. Of other protocols, packets are invalid for example as malformed fragments of IPv6.
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
