package chains

import (
	"fmt"
	"slices"
)

// Packets from further sources. If the node routes the source to the pod that sends, all packets to that address come to the pod, and
// the kernel's connections with that address are the pod's own. So they are judged like those of its other addresses. Otherwise a
// connection with the same ends may belong to others, and the pod's packet is judged alone, as if there was no connection.
//
// Such a packet is marked as stray before routing. It may begin a connection in the kernel's table, which gets the mark lone.
// The first packet of that connection that is not stray decides which end has opened the flow.

// ifSources returns the rule if pods have further sources, and otherwise no rule.
func ifSources(b *static, rule string) string {
	return when(len(b.c.Further.Sources) > 0 && rule != "", rule)
}

// orSources returns the second name if pods have further sources.
func orSources(b *static, without, with string) string {
	if len(b.c.Further.Sources) > 0 {
		return with
	}
	return without
}

// orSourcesDrop returns the chain as a target if pods have further sources, and otherwise DROP.
func orSourcesDrop(b *static, with string) string {
	if len(b.c.Further.Sources) > 0 {
		return b.name(with)
	}
	return "DROP"
}

// exceptSources drops packets from an address that is not the pod's, before routing.
func exceptSources(b *static) string {
	if len(b.c.Further.Sources) > 0 {
		return "-g " + b.name("further")
	}
	return "-j " + b.name(DropsSpoofed)
}

// isStray matches packets that chain stray has marked.
func isStray(b *static) string { return " -m mark --mark " + equals(b.against|b.midflow, b.mask) }

// isLone matches packets of connections that a stray packet has begun.
func isLone(b *static) string { return "-m connmark --mark " + b.c.Marks.Lone().String() }

// neverSources are prefixes whose addresses are no further sources, whatever pods list: unspecified, loopback, link-local, multicast,
// reserved, and IPv4 inside IPv6.
var neverSources = map[uint8][]string{
	4: {"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"},
	6: {"::/96", "::ffff:0.0.0.0/96", "fe80::/10", "ff00::/8"},
}

// owned matches packets with an address, at the given end, that belongs to an endpoint, a node or a Service.
func owned(b *static, end string) string { return "-m set --match-set " + b.sets.Owned + " " + end }

// sourceChains makes the chains for packets from and to further sources. None of them is passed by packets from and to addresses that
// pods own:
//
//   - further: packets of pods from other addresses, before routing; stray: those from listed prefixes
//   - listed: the same for later hooks, without marks
//   - reaches, reached: packets to addresses that the pod does not own, by FORWARD and of the node
//   - lone, lone-in: judge stray packets
//   - src-eg, dst-in, dst-eg, src-in: look up the slots of pods by their further sources
func sourceChains(b *static) {
	if len(b.c.Further.Sources) == 0 {
		return
	}
	spoofed := " -j " + b.name(DropsSpoofed)
	var never []string
	if b.c.Family == 6 { // discovery is for the pod's own addresses only
		for _, to := range linkPrefixes {
			for _, typ := range discoveryTypes {
				never = append(never, fmt.Sprintf("-d %s -p ipv6-icmp -m icmp6 --icmpv6-type %d%s", to, typ, spoofed))
			}
		}
	}
	for _, p := range neverSources[b.c.Family] {
		never = append(never, "-s "+p+spoofed)
	}
	never = append(never, owned(b, "src")+spoofed)
	b.chain("further", slices.Concat(never, eachSource(b, "-i", "src", " -g "+b.name("stray")), []string{spoofed[1:]})...)
	b.chain("stray",
		when(!b.c.Further.NoReversePath, "-m rpfilter -j RETURN"),
		"-j MARK --set-xmark "+equals(b.against|b.midflow, b.mask))
	b.chain("listed", slices.Concat(never, eachSource(b, "-i", "src", " -j RETURN"), []string{spoofed[1:]})...)
	b.chain("reaches", append(reachable(b), "-j "+b.name(DropsStale))...)
	b.chain("reached", append(reachable(b), "-j DROP")...)
	aloneChains(b)
	for _, end := range []struct{ option, name string }{{"-i", "src"}, {"-o", "dst"}} {
		egress, ingress := []string{owned(b, end.name) + " -j RETURN"}, []string{owned(b, end.name) + " -j RETURN"}
		for _, s := range b.c.Further.Sources {
			find := end.option + " " + s.Interface + " -j SET --map-set "
			egress = append(egress, find+s.Egress+" "+end.name+" --map-mark")
			ingress = append(ingress, find+s.Ingress+" "+end.name+" --map-mark")
		}
		b.chain(end.name+"-"+string(EgressSlots), egress...)
		b.chain(end.name+"-"+string(IngressSlots), ingress...)
	}
}

// eachSource returns a rule for each pod with further sources, for packets whose address at an end is one of them.
func eachSource(b *static, option, end, target string) (rules []string) {
	for _, s := range b.c.Further.Sources {
		rules = append(rules, option+" "+s.Interface+" -m set --match-set "+s.Egress+" "+end+target)
	}
	return rules
}

// reachable returns the rules by which packets to further sources return from a chain.
func reachable(b *static) []string {
	if len(b.c.Further.Sources) == 0 {
		return nil
	}
	// A packet to an address that has an owner goes on to the end of the chain, whatever the pod lists.
	var rules []string
	for _, s := range b.c.Further.Sources {
		rules = append(rules, "-o "+s.Interface+" -m set ! --match-set "+b.sets.Owned+" dst -m set --match-set "+s.Egress+" dst -j RETURN")
	}
	return rules
}

// aloneChains make the chains that judge stray packets: the policies of both ends judge each of them as one that opens a flow. They
// leave the mark of the connection alone, which may be that of others, unless they have begun it. An allowed packet leaves with a mark
// by which table filter knows it.
func aloneChains(b *static) {
	// A connection that has been answered was begun by others even if it has no mark, such as one from before the agent, so the state
	// has to be NEW. With the direction ORIGINAL instead, a pod that poses as the opener could have the answers judged as if the
	// other end had opened the connection.
	begin := "-m conntrack --ctstate NEW -m connmark --mark " + equals(0, b.mask) + " -j CONNMARK --set-xmark " + b.c.Marks.Lone().String()
	first := append([]string{b.errors()[0]}, b.dubious()...)
	first = append(first, begin, "-j MARK --set-xmark "+equals(b.midflow, b.mask))
	first = append(first, b.judged(b.in, b.sets.Egress, "src", "eg")...)
	last := []string{b.c.copied(EventAllowed, "-m conntrack --ctstate NEW"), "-j MARK --set-xmark " + equals(b.allow|b.midflow, b.mask)}
	b.chain("lone", slices.Concat(first, []string{b.again(b.out)}, b.judged(b.out, b.sets.Ingress, "dst", "in"), last)...)
	before := []string{b.routed(), when(!b.c.AllowEncap, "! -p tcp -j "+b.name("encap"))}
	if b.c.DropToHost {
		b.chain("lone-in", append(before, "-j DROP")...)
		return
	}
	b.chain("lone-in", slices.Concat(before, first, last)...)
}
