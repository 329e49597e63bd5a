package chains

import (
	"fmt"
	"slices"
	"strings"
)

// checks are rules about the packet alone, whatever policy says.
type checks struct {
	t          *terms
	flows      *flows
	allowEncap bool
	tunnels    []uint16 // UDP ports
	strict     bool     // see MidFlowStrict
}

// encap drops packets that match and are of tunnels; match leaves out TCP, which makes none.
func (c *checks) encap(match string) string {
	return when(!c.allowEncap, both(match, "! -p tcp")+" -j "+c.t.name("encap"))
}

// encapBefore drops packets that match and went to a port of tunnels before translation. That is the same for all packets of a flow, so flows that
// policy has allowed are not looked at. A packet that is not translated takes one match of conntrack's data, not one for each port.
func (c *checks) encapBefore(match string) string {
	return when(c.toTunnels(), both(match, "-p udp")+" -m conntrack --ctstate DNAT -j "+c.t.name("encap-nat"))
}

// others lets packets pass that neither come from a pod nor go to one, but those that the node translates so that they go to the port of a
// tunnel: a pod of another node has sent them to a port of a Service that was no tunnel's yet. The node itself may do so.
func (c *checks) others(match string) string {
	if !c.toTunnels() {
		return match + " -j RETURN"
	}
	return match + " -g " + c.t.name("others")
}

// toTunnels reports whether there are ports that packets must not be translated to.
func (c *checks) toTunnels() bool { return !c.allowEncap && len(c.tunnels) > 0 }

// routed drops packets whose IPv6 routing header leads them to another address than their destination.
func (c *checks) routed() string {
	return c.t.only(6, "-m rt --rt-segsleft 0:255 -j "+c.t.name(DropsRouted))
}

// sourceRouted matches packets of pods that routed cannot match: with a source route of IPv4.
func (c *checks) sourceRouted() string {
	return c.t.in + " -m bpf --bytecode " + bytecode(routedByOptions())
}

// dubious drops packets that cannot begin a flow. With nft, -p matches the header in front of an IPv6 authentication header, while
// conntrack tracks the one behind it: policy would allow the former and so open a flow of the latter.
func (c *checks) dubious() []string {
	return []string{
		"-m conntrack --ctstate INVALID -j " + c.t.name("unread"),
		c.t.only(6, "-p 51 -j "+c.t.name("odd")),
		when(c.strict, "-p tcp -m tcp ! --syn -m conntrack --ctstate NEW -j "+c.t.name(DropsLoose)),
		"-p tcp -m conntrack --ctstate UNTRACKED -j " + c.t.name("odd"),
	}
}

// quotes drops ICMP errors with a forbidden quote.
func (c *checks) quotes() string {
	return c.t.icmp() + " -m conntrack --ctstate INVALID,RELATED -j " + c.t.name("error")
}

// errors returns the rules for ICMP errors. Errors with a forbidden quote are dropped, errors about allowed flows pass, and the others
// are judged like other ICMP messages.
func (c *checks) errors() []string {
	return []string{c.quotes(), c.t.icmp() + " -m conntrack --ctstate RELATED " + c.flows.current() + " -j RETURN"}
}

// chains makes the chains that the rules lead to.
func (c *checks) chains() []Chain {
	t := c.t
	from, to := quotesOwn(t.family)
	return slices.Concat(c.tunnelChains(), []Chain{
		t.chain("error",
			t.in+" -m bpf --bytecode "+bytecode(from)+" -j RETURN",
			t.in+" -j DROP",
			"-m bpf --bytecode "+bytecode(to)+" -j RETURN",
			"-j DROP"),
		// These packets are judged although conntrack finds them invalid: ICMP messages of no flow; UDP-Lite, whose checksum it computes as
		// that of UDP (nf_conntrack_proto_udp.c, udplite_error); GRE, of which it knows two versions only (gre_pkt_to_tuple); and DCCP,
		// which newer kernels do not follow. Of other protocols, packets are invalid for example as malformed fragments of IPv6.
		t.chain("unread", t.icmp()+" -j RETURN", "-p udplite -j RETURN", "-p 47 -j RETURN", "-p 33 -j RETURN", "-j "+t.name(DropsInvalid)),
		t.chain("odd",
			t.only(6, "-p 51 -j DROP"),
			"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK NONE -j DROP",
			"-p tcp -m tcp --tcp-flags FIN,SYN FIN,SYN -j DROP",
			"-p tcp -m tcp --tcp-flags SYN,RST SYN,RST -j DROP"),
	}, c.drops())
}

// tunnelChains makes the chains that drop packets of tunnels.
func (c *checks) tunnelChains() []Chain {
	if c.allowEncap {
		return nil
	}
	var rules, before []string // before: about the port before translation
	for _, port := range c.tunnels {
		rules = append(rules, fmt.Sprintf("-p udp -m udp --dport %d -j DROP", port))
		before = append(before, fmt.Sprintf("-p udp -m conntrack --ctorigdstport %d --ctdir ORIGINAL -j DROP", port))
	}
	// Nearly all packets that get here are of UDP: they pass no rule about other protocols.
	chain := c.t.chain("encap", append(rules, "-p udp -j RETURN", "-p 4 -j DROP", "-p 41 -j DROP", "-p 47 -j DROP")...)
	if len(before) == 0 {
		return []Chain{chain}
	}
	others := c.t.chain("others", "! -i lo -p udp -m conntrack --ctstate DNAT --ctdir ORIGINAL -j "+c.t.name("encap"))
	return []Chain{c.t.chain("encap-nat", before...), others, chain}
}

// bytecode returns the operand of a match bpf.
func bytecode(program []instruction) string {
	var s strings.Builder
	fmt.Fprintf(&s, `"%d`, len(program))
	for _, i := range program {
		fmt.Fprintf(&s, ",%d %d %d %d", i.code, i.yes, i.no, i.k)
	}
	return s.String() + `"`
}
