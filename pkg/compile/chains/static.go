package chains

import (
	"fmt"
	"net/netip"
	"slices"
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
	Generation uint32 // of policy, from FirstGeneration on: flows with another one in their mark are judged again
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
	Resets     Resets
	Events     Events
}

// Resets are how TCP that policy has ended is reset.
type Resets struct {
	// Group is the NFLOG group of packets of flows that are reset; 0: none.
	Group uint16
	// Beside: chains of another backend judge packets, too. They would allow a packet that is passed on to be reset, by a policy of before, and
	// write into the mark of its connection that they have. So TCP that has ended is dropped, and reset by the listener of the group only.
	Beside bool
}

// Further are the pods that may send from further sources. Without any, no chain looks at them.
type Further struct {
	Sources []Source
	// NoReversePath: the kernel has no match rpfilter. Then packets from further sources are always judged alone, see strays.
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
	Raw, Mangle, Filter []Chain
	Jumps               []Jump
}

// NewStatic makes them: each part is asked for its chains and knows the parts whose rules these use. Names of chains:
//
//   - FORWARD, INPUT, OUTPUT: targets of the built-in chains of table mangle
//   - foreign, in table raw: target of PREROUTING, for packets of pods from addresses that are not theirs; link: those that may be discovery
//   - leaving: target of POSTROUTING, for packets of flows that policy has not allowed: those of the node to Services, and those of
//     flows that have ended
//   - F and R: both ends judge a packet that goes as its flow was opened, or an answer
//   - others: packets that are of no pod of the node
//   - encap, error, unread, odd, nd, clean: drop packets, or let them pass, by the packet alone
//   - class-in, class-eg: look up the class of the other end, for slots of ingress and egress
//   - masqueraded: packets whose source conntrack replaces; those that get an address of the node go to node
//   - node: gives a packet that will be masqueraded the class of the node
//   - ok, deny: targets of slots; allow: both ends have allowed; revoked: ends flows that were allowed before
//   - further, stray, listed, reaches, lone, lone-in, src-eg and others, see addresses and strays: if pods have further sources
//   - unjudged, in table filter: resets packets that revoked has marked, and drops packets that the chains of mangle have not judged
func NewStatic(c *Config) (*Static, error) {
	allowed, err := c.Marks.Generation(c.Generation)
	if err != nil {
		return nil, err
	}
	if c.Generation < FirstGeneration {
		return nil, fmt.Errorf("generation %d of policy: those below %d have a meaning of their own in marks of connections", c.Generation, FirstGeneration)
	}
	if len(c.Names.Instance) > maxInstance {
		return nil, fmt.Errorf("instance %q is longer than %d bytes", c.Names.Instance, maxInstance)
	}
	t := &terms{names: c.Names, sets: c.Names.Sets(c.Family), marks: c.Marks, family: c.Family,
		in: "-i " + c.Interfaces + "+", out: "-o " + c.Interfaces + "+"}
	grace := c.MidFlow == MidFlowAnswer
	f := &flows{marks: c.Marks, allowed: allowed, sctpUntracked: c.Kernel.SCTPUntracked}
	a := &addresses{t: t, sources: c.Further.Sources, noReversePath: c.Further.NoReversePath}
	p := &checks{t: t, flows: f, allowEncap: c.AllowEncap, tunnels: c.Tunnels, strict: c.MidFlow == MidFlowStrict}
	j := &judgement{t: t, addresses: a, grace: grace}
	copied := copies{events: c.Events, generation: c.Generation}
	alone := &strays{t: t, flows: f, addresses: a, checks: p, judgement: j, copies: copied, dropToHost: c.DropToHost}
	v := &verdicts{t: t, flows: f, addresses: a, strays: alone, copies: copied, grace: grace, resets: c.Resets}
	forward := &forwarding{t: t, flows: f, addresses: a, checks: p, strays: alone, grace: grace}
	node := &host{t: t, flows: f, addresses: a, checks: p, judgement: j, strays: alone, drop: c.DropToHost}
	classes, err := (&remotes{t: t, masquerade: c.Masquerade}).chains()
	if err != nil {
		return nil, err
	}
	s := &Static{Raw: a.foreign(), Filter: []Chain{v.filter()}}
	s.Mangle = slices.Concat([]Chain{forward.chain()}, j.chains(), v.chains(), classes, p.chains(),
		a.listed(), alone.chains(), a.slots(), node.chains())
	if c.Kernel.SourceRoutes && c.Family == 4 {
		s.Jumps = append(s.Jumps, Jump{"mangle", "PREROUTING", p.sourceRouted(), t.name(DropsRouted)})
	}
	s.Jumps = append(s.Jumps, Jump{"raw", "PREROUTING", a.notOwn(), t.name("foreign")})
	for _, hook := range []string{"FORWARD", "INPUT", "OUTPUT"} {
		s.Jumps = append(s.Jumps, Jump{"mangle", hook, "", t.name(hook)})
	}
	s.Jumps = append(s.Jumps, Jump{"mangle", "POSTROUTING", f.notOpened(), t.name("leaving")})
	for _, hook := range []string{"FORWARD", "INPUT"} {
		s.Jumps = append(s.Jumps, Jump{"filter", hook, f.notAllowed(), t.name("unjudged")})
	}
	return s, nil
}
