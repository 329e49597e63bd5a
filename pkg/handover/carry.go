package handover

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/shares"
)

// Kernel is the kernel's table of connections; conntrack.Conn implements it, and has the contracts of the methods.
type Kernel interface {
	Dump(conntrack.Family, conntrack.Filter, func(conntrack.Entry)) error
	Insert([]conntrack.Flow) []error
	Replace([]conntrack.Entry, []conntrack.Flow) []error
	SetMarks([]conntrack.Entry, func(conntrack.Entry) uint32, uint32) []error
	Usage() (entries, limit uint32, err error) // limit 0: there is none
}

var families = [...]conntrack.Family{conntrack.IPv4, conntrack.IPv6}

// Done counts the changes that ToKernel made.
type Done struct {
	Inserted int // flows added
	Turned   int // entries replaced because the other end had opened the flow
	Marked   int // entries marked as allowed
	Former   int // entries replaced because a live flow has the ends of their connection, which has ended
	Left     int // flows left out because the table has no room for them
	Lone     int // entries of which the opener is not known
}

// Marks has the mark of connections that policy has allowed.
type Marks struct {
	Value, Mask uint32 // Mask 0: no marks are written
	// Keep: the mark is that of policy in force, so a flow gets it only if every end on this node has allowed the flow.
	Keep bool
	// Stray reports whether the endpoint of an interface sends from an address that the node routes elsewhere; nil: none does. Others may
	// have a flow with the same ends. So such a flow counts only if the other end has allowed it, and otherwise a connection that is
	// known gets the mark Lone, which says nothing about who opened it.
	Stray func(ifindex uint32, a netip.Addr) bool
	Lone  uint32
	// Owner returns the ifindex of the endpoint of this node that has an address now; 0: none has. It may be another one than when
	// policy allowed the flow. Not nil if marks are written.
	Owner func(netip.Addr) uint32
}

// passes bounds how often ToKernel compares the table with the flows: packets change it meanwhile.
const passes = 5

// ToKernel adds flows of BPF maps to the kernel's table, with the direction in which they were opened: an entry that the kernel made
// for an answer is replaced. So is the entry of a connection that has begun to end, if a live flow past the kernel has the same ends.
// It marks flows that policy has allowed. It does not add translated flows: the kernel tracks them already.
func ToKernel(flows iter.Seq2[bpfmaps.Flow, error], k Kernel, t dataplane.Timeouts, m Marks) (Done, error) {
	var done Done
	all, lone := map[conntrack.Tuple]wanted{}, map[conntrack.Tuple]bool{}
	for f, err := range flows {
		if err != nil {
			return done, err
		}
		tuple, ok := tupleOf(&f)
		if !ok {
			continue
		}
		w, ok := want(&f, t)
		switch {
		case !ok:
		case m.Stray != nil && m.Stray(w.ends[0], tuple.Src) && !w.allowed[1]:
			lone[tuple] = true
		default:
			all[tuple] = w
		}
	}
	for pass := range passes {
		again, err := onePass(all, lone, k, m, &done)
		if err != nil {
			return done, fmt.Errorf("carry flows over to the kernel's table of connections: %w", err)
		}
		if !again && pass > 0 {
			break
		}
	}
	return done, nil
}

// onePass compares the table with the flows that are wanted. again: it changed something.
func onePass(all map[conntrack.Tuple]wanted, lone map[conntrack.Tuple]bool, k Kernel, m Marks, done *Done) (again bool, err error) {
	d := difference{known: map[conntrack.Tuple]bool{}, lone: lone}
	for _, family := range families {
		if err := k.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) { d.note(all, m, e) }); err != nil {
			return false, err
		}
	}
	if err := d.replace(all, k, m, done); err != nil {
		return false, err
	}
	for _, mark := range []struct {
		entries []conntrack.Entry
		value   uint32
		count   *int
	}{{d.unmarked, m.Value, &done.Marked}, {d.strays, m.Lone, &done.Lone}} {
		for _, err := range k.SetMarks(mark.entries, func(conntrack.Entry) uint32 { return mark.value }, m.Mask) {
			if err != nil && !errors.Is(err, conntrack.ErrNoEntry) {
				return false, err
			}
			*mark.count++
		}
	}
	inserted, err := insert(all, d.known, k, m, done)
	return len(d.wrong)+inserted > 0, err
}

// ofOpener returns the tuple of the opener's packets after translation.
func ofOpener(e conntrack.Entry) conntrack.Tuple {
	t := swapped(e.Reply)
	t.ICMPType, t.ICMPCode = e.Original.ICMPType, e.Original.ICMPCode
	return t
}

// reversed returns the tuple of the same flow as if the other end had opened it; the zero Tuple for a ping.
func reversed(t conntrack.Tuple) conntrack.Tuple {
	if t.ICMPType != 0 {
		return conntrack.Tuple{}
	}
	return swapped(t)
}

// allowed reports whether policy has allowed the flows of a connection, before and after translation. A flow that one end alone has
// allowed was never let through: with the mark it would count as one that policy has come to deny, and the other end would get resets with
// numbers of the first one's choice.
func (m Marks) allowed(all map[conntrack.Tuple]wanted, before, after conntrack.Tuple) bool {
	first, second := all[before].allowed[0], all[after].allowed[1]
	return m.Mask != 0 && (first || second) && m.agrees(first, all[before].ends[0], before.Src) && m.agrees(second, all[after].ends[1], after.Dst)
}

// agrees reports whether one end has nothing against a flow: its endpoint has allowed the flow, and with Keep has the address still, or no
// endpoint of this node has it.
func (m Marks) agrees(allowed bool, ifindex uint32, end netip.Addr) bool {
	owner := m.Owner(end)
	if !allowed {
		return owner == 0
	}
	return !m.Keep || owner == ifindex
}

// insert adds the flows that the table does not have, as far as there is room: an eighth of the table stays free. A table without a limit has
// room for all.
func insert(all map[conntrack.Tuple]wanted, known map[conntrack.Tuple]bool, k Kernel, m Marks, done *Done) (inserted int, err error) {
	entries, limit, err := k.Usage()
	if err != nil {
		return 0, err
	}
	var list []conntrack.Flow
	for t, w := range all {
		if !w.insert || known[t] || known[reversed(t)] {
			continue
		}
		list = append(list, w.flow(t, all, m))
	}
	if limit > 0 {
		list, done.Left = fair(list, int(limit)-int(limit)/8-int(entries))
	}
	for _, err := range k.Insert(list) {
		switch {
		case err == nil:
			inserted++
		case !errors.Is(err, conntrack.ErrExists):
			return inserted, err
		}
	}
	done.Inserted += inserted
	return inserted, nil
}

// fair returns at most room flows. It leaves out flows of the openers that have the most.
func fair(list []conntrack.Flow, room int) (kept []conntrack.Flow, left int) {
	if len(list) <= room {
		return list, 0
	}
	of := map[netip.Addr]int{}
	for _, f := range list {
		of[f.Original.Src]++
	}
	most := shares.Fair(slices.Collect(maps.Values(of)), room)
	taken := map[netip.Addr]int{}
	for _, f := range list {
		if taken[f.Original.Src] < most {
			taken[f.Original.Src]++
			kept = append(kept, f)
		}
	}
	return kept, len(list) - len(kept)
}
