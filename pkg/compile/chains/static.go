package chains

import (
	"fmt"
	"net/netip"
)

// MidFlow is the treatment of TCP packets other than SYNs of flows that the kernel does not know (D-20).
type MidFlow uint8

const (
	// MidFlowJudge judges them as their sender's own traffic.
	MidFlowJudge MidFlow = iota
	// MidFlowAnswer also lets them pass if policy allows what they would answer: while the kernel may have lost its flows.
	MidFlowAnswer
	// MidFlowStrict drops them.
	MidFlowStrict
)

// Config has the parameters of the chains that do not depend on policy.
type Config struct {
	Marks      Marks
	Names      Names
	Family     uint8  // 4 or 6
	Interfaces string // the prefix of names of workload interfaces
	Generation uint32 // of policy: flows with another one in their mark are judged again
	MidFlow    MidFlow
	// DropToHost drops packets from pods to their node, except answers (D-24).
	DropToHost bool
	// AllowEncap lets pods make tunnels. Otherwise packets to the UDP ports in Tunnels are dropped, and those of tunnel protocols.
	AllowEncap bool
	Tunnels    []uint16
	// Further are the pods that may send from further sources.
	Further    Further
	Kernel     KernelTraits
	Masquerade Masquerade // zero: no packet will have the node's address as its source
	// Resets is the NFLOG group of packets of flows that are reset; 0: none.
	Resets uint16
	Events Events
}

// Further are the pods that may send from further sources. Without any, no chain looks at them.
type Further struct {
	Sources []Source
	// NoReversePath: the kernel has no match rpfilter. Then packets from further sources are always judged alone, see aloneChains.
	NoReversePath bool
}

// KernelTraits are what the chains depend on of the node's kernel.
type KernelTraits struct {
	// SCTPUntracked: its conntrack does not know ports of SCTP, so it cannot distinguish flows, and each packet is judged.
	SCTPUntracked bool
	// SourceRoutes: it follows source routes of IPv4 packets, so each packet of a pod is searched for one. Otherwise it drops them, and no
	// packet is searched.
	SourceRoutes bool
}

// Masquerade identifies the packets whose source will be replaced by the node's address. Ingress policy judges them by that address,
// which they have when they arrive at the pod.
type Masquerade struct {
	Mark  uint32       // the bits of packet marks that such packets have; 0: there are no such packets
	Class uint32       // of the node's address
	Addrs []netip.Addr // of the node, each of which may be such a source; of the family of the chains
}

// Jump is a rule that leads from a built-in chain to one of ours. The Jumps of a chain must be its first rules, in the order of their
// list.
type Jump struct {
	Table, Chain string
	Match        string // of packets that are sent there; empty: all
	To           string
}

// Rule returns the jump as the text of a rule.
func (j Jump) Rule() string { return both(j.Match, "-j "+j.To) }

// Static are the chains of one world and family around Dispatch and Slot.
type Static struct {
	Mangle, Filter []Chain
	Jumps          []Jump
}

// static makes chains of rules that are written as texts.
type static struct {
	c                         *Config
	sets                      Sets
	in, out                   string // matches of workload interfaces
	number, allow, against    uint32
	midflow, generation, mask uint32
	stamp                     Value
	list                      []Chain
}

// NewStatic makes them. Names of chains:
//
//   - FORWARD, INPUT, OUTPUT: targets of the built-in chains of table mangle
//   - foreign: target of PREROUTING, for packets of pods from addresses that are not theirs; link: those that may be discovery
//   - leaving: target of POSTROUTING, for packets of flows that policy has not allowed: those of the node to Services, and those of
//     flows that have ended
//   - F and R: both ends judge a packet that goes as its flow was opened, or an answer
//   - encap, error, unread, odd, nd, clean: drop packets, or let them pass, by the packet alone
//   - class-in, class-eg: look up the class of the other end, for slots of ingress and egress
//   - masqueraded: packets whose source conntrack replaces; those that get an address of the node go to node
//   - node: gives a packet that will be masqueraded the class of the node
//   - ok, deny: targets of slots; allow: both ends have allowed; revoked: ends flows that were allowed before
//   - further, stray, listed, reaches, lone, lone-in, src-eg and others, see sourceChains: if pods have further sources
//   - unjudged, in table filter: resets packets that revoked has marked, and drops packets that the chains of mangle have not judged
func NewStatic(c *Config) (*Static, error) {
	stamp, err := c.Marks.Generation(c.Generation)
	if err != nil {
		return nil, err
	}
	if len(c.Names.Instance) > MaxInstance {
		return nil, fmt.Errorf("instance %q is longer than %d bytes", c.Names.Instance, MaxInstance)
	}
	m := c.Marks
	b := &static{c: c, sets: c.Names.Sets(c.Family), in: "-i " + c.Interfaces + "+", out: "-o " + c.Interfaces + "+",
		number: m.number(), allow: m.allow(), against: m.against(), midflow: m.midflow(), generation: m.generation(),
		mask: m.mask, stamp: stamp}
	b.forward()
	b.openerFirst()
	b.answererFirst()
	b.verdicts()
	if err := b.classes(); err != nil {
		return nil, err
	}
	b.packets()
	dropChains(b)
	foreign(b)
	sourceChains(b)
	b.input()
	b.output()
	s := &Static{Mangle: b.list}
	if c.Family == 4 && c.Kernel.SourceRoutes {
		s.Jumps = append(s.Jumps, Jump{"mangle", "PREROUTING", b.in + " -m bpf --bytecode " + quoted(routedByOptions()), b.name(DropsRouted)})
	}
	s.Jumps = append(s.Jumps, Jump{"mangle", "PREROUTING", notOwn(b), b.name("foreign")})
	for _, hook := range []string{"FORWARD", "INPUT", "OUTPUT"} {
		s.Jumps = append(s.Jumps, Jump{"mangle", hook, "", b.name(hook)})
	}
	s.Jumps = append(s.Jumps, Jump{"mangle", "POSTROUTING", notOpened(c.Marks), b.name("leaving")})
	b.list = nil
	filterChains(b)
	s.Filter = b.list
	for _, hook := range []string{"FORWARD", "INPUT"} {
		s.Jumps = append(s.Jumps, Jump{"filter", hook, "-m connmark --mark " + equals(0, c.Marks.passed()), b.name("unjudged")})
	}
	return s, nil
}

// chain adds a chain. Empty rules are left out.
func (b *static) chain(name string, rules ...string) {
	c := Chain{Name: b.name(name)}
	for _, r := range rules {
		if r != "" {
			c.Rules = append(c.Rules, r)
		}
	}
	c.Decides = make([]Decision, len(c.Rules))
	b.list = append(b.list, c)
}

func (b *static) name(name string) string { return b.c.Names.Chain(name) }

// equals returns the operand of a match or of a change of marks.
func equals(value, mask uint32) string { return fmt.Sprintf("%#x/%#x", value, mask) }

// when returns the rule if so holds, and otherwise the empty string, which stands for no rule.
func when(so bool, rule string) string {
	if so {
		return rule
	}
	return ""
}

// only returns the rule if the chains are of the family, and otherwise no rule.
func (b *static) only(family uint8, rule string) string { return when(b.c.Family == family, rule) }

// icmp matches ICMP of the family.
func (b *static) icmp() string {
	if b.c.Family == 4 {
		return "-p icmp"
	}
	return "-p ipv6-icmp"
}

// current matches the marks of flows that the policy in force has allowed.
func (b *static) current() string { return "-m connmark --mark " + b.stamp.String() }

// fast lets packets of such flows pass. A flow that a conntrack helper expected, for example of FTP, inherits the mark of the flow
// that announced it. So its first packet, which is RELATED, is judged.
func (b *static) fast() string {
	rule := "-m conntrack ! --ctstate RELATED " + b.current() + " -j RETURN"
	if b.c.Kernel.SCTPUntracked {
		return "! -p sctp " + rule
	}
	return rule
}

// spoofed drops packets that match and that a pod sends from an address that it may not send from, and all packets of an interface
// that is not ready.
func (b *static) spoofed(match string) string {
	return both(match, notOwn(b)) + " -j " + b.name(orSources(b, DropsSpoofed, "listed"))
}

// notOwn matches packets from an address that the pod does not own, and all of an interface that is not ready.
func notOwn(b *static) string {
	return b.in + " -m set ! --match-set " + b.sets.Own + " src,src"
}

// stale drops packets to an address that the pod behind the interface does not own, and all packets to an interface that is not
// ready: the flow may be that of the address's former owner.
func (b *static) stale() string {
	return b.out + " -m set ! --match-set " + b.sets.Own + " dst,dst -j " + b.name(orSources(b, DropsStale, "reaches"))
}

// routed drops packets whose IPv6 routing header leads them to another address than their destination.
func (b *static) routed() string {
	return b.only(6, "-m rt --rt-segsleft 0:255 -j "+b.name(DropsRouted))
}

// revoked sends packets of flows that the policy in force has revoked to the chain revoked.
func (b *static) revoked() string {
	return "-m connmark --mark " + b.c.Marks.denies(b.stamp).String() + " -g " + b.name("revoked")
}

// notOpened matches packets of flows that policy has not allowed, and of those that an answer of the node began: the first packet of
// another flow of the node is a SYN, which policy does not judge.
func notOpened(m Marks) string {
	return "-m connmark ! --mark " + equals(m.passed(), m.passed()|m.turned())
}

// ended matches packets of flows that have ended, see end.
func ended(b *static) string { return "-m mark --mark " + equals(b.midflow, b.mask) }

// dubious drops packets that cannot begin a flow. With nft, -p matches the header in front of an IPv6 authentication header, while
// conntrack tracks the one behind it: policy would allow the former and so open a flow of the latter.
func (b *static) dubious() []string {
	return []string{
		"-m conntrack --ctstate INVALID -j " + b.name("unread"),
		b.only(6, "-p 51 -j "+b.name("odd")),
		when(b.c.MidFlow == MidFlowStrict, "-p tcp -m tcp ! --syn -m conntrack --ctstate NEW -j "+b.name(DropsLoose)),
		"-p tcp -m conntrack --ctstate UNTRACKED -j " + b.name("odd"),
	}
}

// errors returns the rules for ICMP errors. Errors with a forbidden quote are dropped, errors about allowed flows pass, and the others
// are judged like other ICMP messages.
func (b *static) errors() []string {
	return []string{
		b.icmp() + " -m conntrack --ctstate INVALID,RELATED -j " + b.name("error"),
		b.icmp() + " -m conntrack --ctstate RELATED " + b.current() + " -j RETURN",
	}
}
