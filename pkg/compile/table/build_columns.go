package table

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
)

// columns are the equivalence classes of (protocol index, key): packets of one column fit the same entries by protocol
// and destination port. A column is the entries of its group plus its own.
type columns struct {
	groups []bitmap // entries that fit a protocol whatever its ports, without duplicates
	list   []column // by group, then by own entries; those without own entries last in their group
	bounds []int    // by group: its first column; and the number of columns
	spans  [bpf.L4Indexes][]span
}

// column has the entries that fit by a port range, ascending. There are also as a bitmap when they are many.
type column struct {
	group   int
	entries []int32
	dense   bitmap
	next    int // while columns are searched for: the one before with the same hash, and 1; 0: there is none
}

// span says that keys from lo to the next span's are of one column. The first span starts at 0.
type span struct {
	lo  uint16
	col int
}

// find cuts the keys of every protocol index into spans. False: it would take too much memory, or it was stopped.
func (c *columns) find(rules []bpf.Rule, breaks *breaks) bool {
	seen := map[uint64]int{}
	bytes := 0
	for index, proto := range match.L4Protocols {
		group := c.group(rules, int(proto))
		breaks.spend(len(rules))
		sweep(rules, proto, destinationPorts, breaks, func(lo uint16, hash uint64, entries []int32) bool {
			col, cost := c.column(seen, group, hash, entries)
			bytes += cost
			c.spans[index] = append(c.spans[index], span{lo, col})
			return bytes <= maxColumnBytes && breaks.spend(4+len(entries)/8)
		})
		if bytes > maxColumnBytes || breaks.stopped {
			return false
		}
	}
	// Protocols no entry names are as the one before, unless that is named.
	var named [257]bool
	for i := range rules {
		if rules[i].Flags&(bpf.RuleProto|bpf.RuleNotProto) != 0 {
			named[rules[i].Proto], named[int(rules[i].Proto)+1] = true, true
		}
	}
	named[0] = true
	for proto, cut := range named {
		if cut {
			breaks.spend(len(rules) / 8)
			col, _ := c.column(seen, c.group(rules, proto), 0, nil)
			c.spans[bpf.L4Other] = append(c.spans[bpf.L4Other], span{uint16(proto), col})
		}
	}
	c.sort(len(rules))
	return breaks.spend(8 * len(c.list))
}

// group returns the number of the group of a protocol.
func (c *columns) group(rules []bpf.Rule, proto int) int {
	fits := newBitmap(len(rules))
	for i := range rules {
		r := &rules[i]
		switch same := int(r.Proto) == proto; {
		case r.Ndports > 0:
		case r.Flags&bpf.RuleProto != 0 && !same, r.Flags&bpf.RuleNotProto != 0 && same:
		default:
			fits.set(i)
		}
	}
	for g, other := range c.groups {
		if slices.Equal(fits, other) {
			return g
		}
	}
	c.groups = append(c.groups, fits)
	return len(c.groups) - 1
}

// column returns the number of the column with these entries, and what a new one costs in bytes. The hash finds
// candidates; equality decides. seen has the last column with a hash, and 1.
func (c *columns) column(seen map[uint64]int, group int, hash uint64, entries []int32) (col, cost int) {
	key := hash + mix(uint64(group)<<32)
	for at := seen[key]; at != 0; at = c.list[at-1].next {
		if of := &c.list[at-1]; of.group == group && slices.Equal(of.entries, entries) {
			return at - 1, 0
		}
	}
	col = len(c.list)
	c.list = append(c.list, column{group: group, entries: slices.Clone(entries), next: seen[key]})
	seen[key] = col + 1
	return col, 4*len(entries) + 64
}

// sort orders columns so that rows have long runs of equal cells: the column whose own entries come first in the match
// table comes first.
func (c *columns) sort(rules int) {
	const index = 1<<20 - 1 // there are fewer columns: see maxColumnBytes
	order := make([]uint64, len(c.list))
	for i := range order { // numbers are sorted in a third of the time that it takes to compare columns
		order[i] = uint64(c.list[i].group)<<40 | uint64(c.list[i].first(rules))<<20 | uint64(i)
	}
	slices.Sort(order)
	for from, to := 0, 0; from < len(order); from = to {
		for to < len(order) && order[to]>>20 == order[from]>>20 {
			to++
		}
		slices.SortFunc(order[from:to], func(a, b uint64) int {
			return slices.Compare(c.list[a&index].entries, c.list[b&index].entries)
		})
	}
	sorted, place := make([]column, len(order)), make([]int, len(order))
	for to := range order {
		from := order[to] & index
		sorted[to], place[from] = c.list[from], to
		if e := sorted[to].entries; len(e) > rules/64+1 {
			sorted[to].dense = newBitmap(rules)
			for _, i := range e {
				sorted[to].dense.set(int(i))
			}
		}
	}
	c.list = sorted
	c.bounds = make([]int, len(c.groups)+1)
	for i := range c.list {
		c.bounds[c.list[i].group+1] = i + 1
	}
	for index := range c.spans {
		for i := range c.spans[index] {
			s := &c.spans[index][i]
			s.col = place[s.col]
		}
	}
}

// work is the number of steps it takes at worst to fill one row.
func (c *columns) work(rules int) int {
	steps := 0
	for i := range c.list {
		steps += c.steps(i, rules)
	}
	return steps
}

// steps is the number of steps it takes at worst to fill one cell of a column.
func (c *columns) steps(col, rules int) int { return 1 + min(len(c.list[col].entries), rules/64) }

// first is the first of the column's own entries, or n.
func (c *column) first(n int) int {
	if len(c.entries) == 0 {
		return n
	}
	return int(c.entries[0])
}

// sportClasses are the equivalence classes of source ports. Class 0 always exists; it is that of protocols without ports.
type sportClasses struct {
	list  []bitmap // entries that fit by source port
	spans [bpf.L4Indexes][]span
}

// maxSportClasses bounds what the search for equal ones costs.
const maxSportClasses = 1024

// find cuts the source ports of every protocol index into spans. False: there are too many classes, or it was stopped.
func (c *sportClasses) find(rules []bpf.Rule, breaks *breaks) bool {
	open := newBitmap(len(rules))
	for i := range rules {
		if rules[i].Nsports == 0 {
			open.set(i)
		}
	}
	c.list = []bitmap{open}
	for index := range c.spans {
		if index > bpf.L4SCTP {
			c.spans[index] = []span{{0, 0}}
			continue
		}
		sweep(rules, match.L4Protocols[index], sourcePorts, breaks, func(lo uint16, _ uint64, entries []int32) bool {
			fits := slices.Clone(open)
			for _, i := range entries {
				fits.set(int(i))
			}
			col := slices.IndexFunc(c.list, func(o bitmap) bool { return slices.Equal(o, fits) })
			if col < 0 {
				col = len(c.list)
				c.list = append(c.list, fits)
			}
			c.spans[index] = append(c.spans[index], span{lo, col})
			return len(c.list) <= maxSportClasses && breaks.spend(4+len(open)/8+len(c.list)/8)
		})
		breaks.spend(len(rules) / 4)
	}
	return len(c.list) <= maxSportClasses && !breaks.stopped
}
