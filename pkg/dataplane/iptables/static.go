package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ruleset"
)

// Flows is the kernel's table of connections; conntrack.Conn is one.
type Flows interface {
	// Remark replaces the bits of mask in the marks of entries with those that decide returns; write false: the entry stays as it is.
	Remark(f conntrack.Family, filter conntrack.Filter, mask uint32, decide func(conntrack.Entry) (mark uint32, write bool)) (written int, err error)
	// DeleteAddresses removes all entries of a family with an end whose address of holds for.
	DeleteAddresses(f conntrack.Family, of func(netip.Addr) bool) (deleted int, err error)
	// DeleteMarked removes the entries that the filter chooses.
	DeleteMarked(conntrack.Family, conntrack.Filter) (deleted int, err error)
}

// static are the chains that do not depend on policy. They contain the generation that marks the flows which policy allows.
type static struct {
	world      *world
	flows      Flows
	base       chains.Config // for either family, without names and generation
	keep       bool          // existing connections are left alone
	generation generation
	node       masquerade
	written    map[uint8]content // by IP version
	stale      bool              // something that was allowed may be denied now: live flows have to be judged again
	learning   Learn             // nil: no other dataplane has judged until now
	foreign    bool              // connections may have marks of other agents' generations
	otherBits  bool              // a world in force writes marks in other bits, or none that can be read
	listing    listing
	searching  bool // the chains as they were last written search packets for source routes
	// resumed: the generation is that of the worlds in force, so live flows are not judged again.
	resumed bool
}

// content has the parameters that the chains of one IP version were written with.
type content struct {
	generation, node uint32
	addrs            uint64 // version of the node's addresses
	sources          uint64 // version of the endpoints with further sources
	beside           bool   // chains of the other backend are in force, too
}

// newStatic begins with the generation after that of the worlds in force; found are those worlds, of both backends. Where existing
// connections are kept it begins with the generation in force, if each IP version has a world whose marks and generation are the same.
func newStatic(c dataplane.Config, w *world, marks chains.Marks, found []*inForce, kernel Kernel) *static {
	s := &static{world: w, flows: kernel.Flows, keep: c.KeepExisting, learning: kernel.Learn,
		generation: generation{most: marks.MostGeneration()}, written: map[uint8]content{},
		node: masquerade{of: map[uint8]masqueradeOf{4: {class: classes.None4}, 6: {class: classes.None6}}},
		base: chains.Config{Marks: marks, Interfaces: c.InterfacePrefix, DropToHost: c.HostDrop, AllowEncap: c.AllowEncap,
			Tunnels: c.AllTunnelPorts(), Kernel: chains.KernelTraits{SCTPUntracked: kernel.SCTPUntracked, SourceRoutes: kernel.followsRoutes()},
			Masquerade: chains.Masquerade{Mark: c.MasqueradeMark}, Resets: chains.Resets{Group: kernel.Resets}, Events: chains.Events{Group: kernel.Events, Rate: c.EventRate}}}
	s.searching = s.base.Kernel.SourceRoutes
	if c.StrictMidFlow {
		s.base.MidFlow = chains.MidFlowStrict
	}
	s.follow(found)
	return s
}

// follow chooses the first generation, by those of the worlds in force. Each agent makes chains of both IP versions. If those of one are
// gone, the others may have a number of long ago: no endpoint has addresses of that version, so they were not written again.
func (s *static) follow(found []*inForce) {
	known, unknown, numbers := map[uint8]bool{}, false, []uint32{}
	for _, f := range found {
		for family := range f.names {
			number, ok := f.generation(family, s.base.Marks)
			numbers = append(numbers, number) // also of another layout: until its chains are removed, they write it
			known[family], unknown = known[family] || ok, unknown || !ok
		}
	}
	g, complete := &s.generation, known[4] && known[6] && !unknown
	s.foreign, s.otherBits = !complete, unknown
	s.listing = newListing(found)
	if len(numbers) > 0 {
		g.former = true // an agent may have been killed before it had replaced them
		g.number = slices.Max(numbers)
		lowest := slices.Min(numbers)
		s.foreign = s.foreign || g.isUpper(lowest) != g.isUpper(g.number) // which half the last agent has left is not known
		s.resumed = s.keep && complete && lowest == g.number && g.number >= chains.FirstGeneration
	}
	if s.resumed {
		return
	}
	for s.judgeAgain(); slices.Contains(numbers, g.number); { // packets still get marks of the worlds in force
		s.judgeAgain()
	}
}

// judgeAgain makes live flows be judged again once packets go to this world.
func (s *static) judgeAgain() {
	s.resumed = false
	next, crosses := s.generation.following()
	s.generation.number, s.foreign = next, s.foreign || crosses // else clean replaces the marks
}

// generation returns the generation in the chains of a world in force; not ok: there are none, or their marks have another layout. Then it
// is the number that those marks have in this one.
func (f *inForce) generation(family uint8, marks chains.Marks) (number uint32, ok bool) {
	names, ok := f.names[family]
	if !ok {
		return 0, false
	}
	allow := f.saved[family].Chain(names.Chain("allow"))
	if allow == nil || len(allow.Rules) == 0 {
		return 0, false
	}
	value, mask, ok := stampOf(allow.Rules[len(allow.Rules)-1].Text)
	if !ok {
		return 0, false
	}
	number, _, _ = marks.GenerationOf(value)
	stamp, err := marks.Generation(number)
	return number, err == nil && stamp.Value == value && stamp.Mask == mask
}

// stampOf returns the value and the mask that a rule writes into the marks of connections.
func stampOf(rule string) (value, mask uint32, ok bool) {
	_, err := fmt.Sscanf(ruleset.Canonical(rule), "-j CONNMARK --set-xmark %v/%v", &value, &mask)
	return value, mask, err == nil
}

// begin makes the chains of both IP versions desired, with the next commit.
func (s *static) begin() error {
	if !s.world.breached { // else what is left of the world in force would drop live flows until this one is
		if err := s.clean(); err != nil {
			return err
		}
	}
	for _, family := range families {
		if err := s.write(family); err != nil {
			return err
		}
	}
	return nil
}

// clean clears marks that this agent's generations have not made: they would count as verdicts. That a connection began with an answer is no
// verdict, and without that bit a connection that a pod has opened to the node would be the node's.
func (s *static) clean() error {
	if !s.foreign {
		return nil
	}
	bits := s.base.Marks.Mask()
	if _, answer := s.base.Marks.Flags(); !s.otherBits {
		bits &^= answer
	}
	return s.remark(bits, 0)
}

// succeed clears such marks for the last time, once packets go to this world: the chains of other agents write none any more. The connection
// of a packet that has left these chains may not be in the kernel's table yet.
func (s *static) succeed() error {
	if s.learning != nil {
		return nil // learn has written all marks; no other iptables agent has judged
	}
	if !s.foreign {
		return nil
	}
	if err := errors.Join(s.world.grace(unseen.always), s.clean()); err != nil {
		return err
	}
	s.foreign = false
	return nil
}

// remark sets the given bits to a value in the marks of all connections that have any of them.
func (s *static) remark(bits, value uint32) error {
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		lone := s.base.Marks.Lone()
		_, err := s.flows.Remark(family, conntrack.Filter{}, bits, func(e conntrack.Entry) (uint32, bool) {
			return value, e.Mark&bits != 0 && (value == 0 || e.Mark&lone.Mask != lone.Value)
		})
		if err != nil {
			return fmt.Errorf("replace marks of connections: %w", err)
		}
	}
	return nil
}

// write makes the chains of one IP version desired.
func (s *static) write(family uint8) error {
	c := s.base
	now := s.content(family)
	c.Further = chains.Further{Sources: s.listing.of[family], NoReversePath: s.listing.noReversePath}
	c.Family, c.Names, c.Generation = family, s.world.names[family], now.generation
	c.Masquerade.Class, c.Masquerade.Addrs = now.node, s.node.of[family].addrs
	c.Resets.Beside = now.beside
	list, err := chains.NewStatic(&c)
	if err != nil {
		return err
	}
	made := map[chainName]bool{}
	for name, of := range map[string][]chains.Chain{"raw": list.Raw, "mangle": list.Mangle, "filter": list.Filter} {
		for _, chain := range of {
			if err := s.world.of(name, family).Set(ruleset.Chain{Name: chain.Name, Rules: chain.Rules}); err != nil {
				return err
			}
			made[chainName{name, chain.Name}] = true
		}
	}
	for _, gone := range s.listing.replace(family, made) {
		s.world.of(gone.table, family).Remove(gone.chain)
	}
	s.world.setJumps(family, list.Jumps)
	s.written[family] = now
	return nil
}

// content returns what the chains of one IP version are to be written with.
func (s *static) content(family uint8) content {
	node := s.node.of[family]
	return content{s.generation.number, node.class, node.version, s.listing.version[family], s.world.isBeside()}
}

// differs reports whether the chains of an IP version that is used were written with other parameters than the present ones.
func (s *static) differs(used func(family uint8) bool) bool {
	return slices.ContainsFunc(families[:], func(family uint8) bool { return used(family) && s.written[family] != s.content(family) })
}

// markStale has the next rejudge make live flows be judged again: something that was allowed may be denied now.
func (s *static) markStale() { s.stale = true }

// ofOtherHalf reports whether the chains of an IP version write a number of the half that is not in use. They must not while those are replaced,
// although no endpoint has addresses of that version.
func (s *static) ofOtherHalf(family uint8) bool {
	return s.generation.isUpper(s.written[family].generation) != s.generation.isUpper(s.generation.number)
}

// rejudge makes live flows be judged again, if that is due, with the next commit. used reports whether endpoints have addresses of
// an IP version: others have no flows.
func (s *static) rejudge(used func(family uint8) bool) error {
	if s.stale && !s.keep {
		if err := s.nextGeneration(); err != nil {
			return err
		}
	}
	s.stale = false
	for _, family := range families {
		if (used(family) || s.ofOtherHalf(family)) && s.written[family] != s.content(family) {
			if err := s.write(family); err != nil {
				return err
			}
		}
	}
	return nil
}
