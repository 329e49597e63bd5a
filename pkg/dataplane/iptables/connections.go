package iptables

import (
	"context"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// Enforced is the part of the enforced policy that is needed to interpret the kernel's table of connections. Commands read it with
// or without a running agent.
type Enforced struct {
	// Locals are the addresses of the endpoints that are open, with their interfaces.
	Locals map[netip.Addr]string
	// Listed are their further sources, in the order of further.Sorted.
	Listed []further.Listed
	// Routed are the further sources that the node routes to the endpoints. nil: Read finds no connections of further sources.
	Routed *further.Routed
	of     map[uint8]judgement
}

// judgement is the policy in force of one IP version, as marks of connections name it.
type judgement struct {
	marks      chains.Marks
	generation uint32
}

// ReadEnforced reads what is enforced in this network namespace. tools are of all backends that an agent may have used.
func ReadEnforced(ctx context.Context, tools []*iptables.Tools, sets ipsets.Kernel) (*Enforced, error) {
	var worlds []*inForce
	for _, t := range tools {
		_, found, err := newWorld(ctx, t, "")
		if err != nil {
			return nil, err
		}
		worlds = append(worlds, found)
	}
	return readWorlds(worlds, sets)
}

// readWorlds reads what worlds enforce.
func readWorlds(worlds []*inForce, sets ipsets.Kernel) (*Enforced, error) {
	e := &Enforced{Locals: map[netip.Addr]string{}, of: map[uint8]judgement{}}
	for _, found := range worlds {
		for family, names := range found.names {
			if marks, ok := found.marks(family); ok {
				number, _ := found.generation(family, marks)
				e.of[family] = judgement{marks, number}
			}
			if err := listLocals(sets, family, names, func(a netip.Addr, iface string) { e.Locals[a] = iface }); err != nil {
				return nil, err
			}
			listed, err := found.listed(family, sets)
			if err != nil {
				return nil, err
			}
			e.Listed = append(e.Listed, listed...)
		}
	}
	e.Listed = further.Sorted(e.Listed)
	return e, nil
}

// listLocals passes the addresses of the endpoints that are open in a world, with their interfaces.
func listLocals(sets ipsets.Kernel, family uint8, names chains.Names, each func(a netip.Addr, iface string)) error {
	own := newSets(sets, map[uint8]chains.Names{family: names}).of[family].own
	return sets.List(own.Spec(), func(entry ipsets.Entry) {
		if !entry.IsAnchor() {
			each(entry.Prefix.Addr(), entry.Interface)
		}
	})
}

// listed returns the further sources of one IP version that the chains in force know.
func (f *inForce) listed(family uint8, kernel ipsets.Kernel) (list []further.Listed, err error) {
	chain := f.raw[family].Chain(f.names[family].Chain("further"))
	if chain == nil {
		return nil, nil
	}
	for _, rule := range chain.Rules {
		var iface, set string
		if _, err := fmt.Sscanf(ruleset.Canonical(rule.Text), "-i %s -m set --match-set %s src", &iface, &set); err != nil {
			continue // it is about addresses that are never further sources
		}
		prefixes, err := ipsets.Prefixes(kernel, sourceSpec(set, family))
		if err != nil {
			return nil, fmt.Errorf("read the further sources of %s: %w", iface, err)
		}
		for _, p := range prefixes {
			list = append(list, further.Listed{Prefix: p, Interface: iface})
		}
	}
	return list, nil
}

// marks returns the layout of connection marks that the chains in force write; not ok: the chains do not show it. The bits of the
// generation are adjacent. Above them are two flags: the first packet on record was an answer, and policy has allowed the flow.
func (f *inForce) marks(family uint8) (chains.Marks, bool) {
	allow := f.saved[family].Chain(f.names[family].Chain("allow"))
	if allow == nil || len(allow.Rules) == 0 {
		return chains.Marks{}, false
	}
	value, mask, ok := stampOf(allow.Rules[len(allow.Rules)-1].Text)
	if !ok || mask == 0 {
		return chains.Marks{}, false
	}
	marks, err := chains.NewMarks(mask | 1<<(bits.Len32(mask)-2))
	if err != nil {
		return chains.Marks{}, false
	}
	_, _, denied := marks.GenerationOf(value)
	return marks, !denied // else it is the layout of before 2026-11-23, in which the flag said the opposite
}

// Connection is a connection of a local endpoint, with the ends as policy judges them.
type Connection struct {
	Opener, Responder conntrack.Tuple // as the opener sends, and as the responder does
	// Judged: by its mark, policy has judged it. Current: the policy in force has judged it. Denied: the policy that judged it last
	// denied it.
	Judged, Current, Denied bool
	// Turned: the first packet on record was an answer, so Opener is the end that received it.
	Turned bool
	// Lone: a packet that was judged by itself has begun it, so its ends do not show which endpoint has sent the packet.
	Lone bool
}

// Read interprets an entry as a Connection; not ok: neither end is a local endpoint. A connection that a packet judged alone has begun is
// no endpoint's by its further source.
func (e *Enforced) Read(entry conntrack.Entry) (c Connection, ok bool) {
	judged := e.of[familyOf(entry.Original.Src)]
	g, turned, denied := uint32(0), false, false
	if judged.marks != (chains.Marks{}) {
		g, turned, denied = judged.marks.GenerationOf(entry.Mark)
	}
	lone := judged.marks != (chains.Marks{}) && judged.marks.IsLone(entry.Mark)
	c = Connection{Opener: entry.Original, Responder: entry.Reply, Turned: turned, Lone: lone,
		Judged: g != chains.NeverJudged && !lone, Current: g != chains.NeverJudged && g == judged.generation}
	c.Denied = c.Judged && denied
	if turned {
		c.Opener, c.Responder = c.Responder, c.Opener
	}
	if lone { // its packets do not show which endpoint has sent them
		return c, e.IsLocal(c.Opener.Src) || e.IsLocal(c.Responder.Src)
	}
	return c, e.Interface(c.Opener.Src) != "" || e.Interface(c.Responder.Src) != ""
}

// IsLocal reports whether an endpoint of this node has the address.
func (e *Enforced) IsLocal(a netip.Addr) bool { return e.Locals[a] != "" }

// Interface returns the interface of the endpoint of this node that has the address, or to which it is routed as a further source; empty:
// there is none.
func (e *Enforced) Interface(a netip.Addr) string {
	if iface := e.Locals[a]; iface != "" {
		return iface
	}
	return e.Routed.Interface(a)
}
