package handover

import (
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
)

// Kernel is the kernel's table of connections; conntrack.Conn is one.
type Kernel interface {
	Dump(conntrack.Family, conntrack.Filter, func(conntrack.Entry)) error
	Insert([]conntrack.Flow) []error
	Delete([]conntrack.Entry) []error
	SetMarks([]conntrack.Entry, func(conntrack.Entry) uint32, uint32) []error
	Usage() (entries, limit uint32, err error)
}

var families = [...]conntrack.Family{conntrack.IPv4, conntrack.IPv6}

// Done counts what ToKernel did.
type Done struct {
	Inserted, Turned, Marked int
	Left                     int // flows that there is no room for
}

// Marks says what marks the connections get that policy has allowed.
type Marks struct {
	Value, Mask uint32 // Mask 0: no marks are written
	// Keep: the mark is that of policy in force, so only flows get it whose ends of this node have all allowed them.
	Keep  bool
	Local func(netip.Addr) bool // whether an address is an endpoint's of this node; for Keep
}

// passes is how often ToKernel looks at most whether the table has all flows as it should: packets change it meanwhile.
const passes = 5

// ToKernel adds flows of BPF maps to the kernel's table, with the direction in which they were opened: where the kernel has seen an
// answer first, its entry is replaced. It marks those that policy has allowed. Of translated ones the kernel knows already.
func ToKernel(flows iter.Seq2[bpfmaps.Flow, error], k Kernel, t dataplane.Timeouts, m Marks) (Done, error) {
	var done Done
	all := map[conntrack.Tuple]wanted{}
	for f, err := range flows {
		if err != nil {
			return done, err
		}
		tuple, ok := tupleOf(&f)
		if !ok {
			continue
		}
		if w, ok := want(&f, t); ok {
			all[tuple] = w
		}
	}
	for pass := range passes {
		again, err := onePass(all, k, m, &done)
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
func onePass(all map[conntrack.Tuple]wanted, k Kernel, m Marks, done *Done) (again bool, err error) {
	known := map[conntrack.Tuple]bool{}
	var wrong, unmarked []conntrack.Entry
	for _, family := range families {
		err := k.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) {
			before, after := e.Original, ofOpener(e)
			known[before], known[after] = true, true
			reverse, hasReverse := all[reversed(e.Original)]
			_, hasOwn := all[before]
			switch {
			case e.Zone != 0:
			case hasReverse && !hasOwn && reverse.insert && !reverse.guessed && before == after:
				wrong = append(wrong, e)
			case m.Mask != 0 && e.Mark&m.Mask == 0 && m.allowed(all, before, after):
				unmarked = append(unmarked, e)
			}
		})
		if err != nil {
			return false, err
		}
	}
	for i, err := range k.Delete(wrong) {
		if err != nil && !errors.Is(err, conntrack.ErrNoEntry) {
			return false, err
		}
		delete(known, wrong[i].Original)
		done.Turned++
	}
	for _, err := range k.SetMarks(unmarked, func(conntrack.Entry) uint32 { return m.Value }, m.Mask) {
		if err != nil && !errors.Is(err, conntrack.ErrNoEntry) {
			return false, err
		}
		done.Marked++
	}
	inserted, err := insert(all, known, k, m, done)
	return len(wrong)+inserted > 0, err
}

// ofOpener are the packets of an entry's opener after translation.
func ofOpener(e conntrack.Entry) conntrack.Tuple {
	t := swapped(e.Reply)
	t.ICMPType, t.ICMPCode = e.Original.ICMPType, e.Original.ICMPCode
	return t
}

// reversed are the packets of a flow that the other end of a tuple has opened; of a ping, none.
func reversed(t conntrack.Tuple) conntrack.Tuple {
	if t.ICMPType != 0 {
		return conntrack.Tuple{}
	}
	return swapped(t)
}

// allowed reports whether policy has allowed the flows of a connection, before and after translation.
func (m Marks) allowed(all map[conntrack.Tuple]wanted, before, after conntrack.Tuple) bool {
	first, second := all[before].allowed[0], all[after].allowed[1]
	if !m.Keep {
		return first || second
	}
	return (first || second) && (first || !m.Local(before.Src)) && (second || !m.Local(after.Dst))
}

// insert adds the flows that the table does not know, as far as it has room: an eighth of it stays free.
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
		f := conntrack.Flow{Original: t, Timeout: w.timeout}
		if m.allowed(all, t, t) {
			f.Mark = m.Value
		}
		list = append(list, f)
	}
	room := int(limit) - int(limit)/8 - int(entries)
	list, done.Left = fair(list, room)
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

// fair leaves out flows beyond room: those of openers that have the most.
func fair(list []conntrack.Flow, room int) (kept []conntrack.Flow, left int) {
	if len(list) <= room {
		return list, 0
	}
	of := map[netip.Addr]int{}
	for _, f := range list {
		of[f.Original.Src]++
	}
	most := 0
	for fits := true; fits; most++ {
		n := 0
		for _, count := range of {
			n += min(count, most+1)
		}
		fits = n <= room
	}
	most--
	taken := map[netip.Addr]int{}
	for _, f := range list {
		if taken[f.Original.Src] < most {
			taken[f.Original.Src]++
			kept = append(kept, f)
		}
	}
	return kept, len(list) - len(kept)
}
