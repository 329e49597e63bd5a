package shares

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Parts of the table, in eighths: from nearlyFull on connections are removed until the table is down to enough. Whatever the node and
// connections that pass through it occupy, assuredRoom stays for those of endpoints.
const (
	nearlyFull  = 6
	enough      = 5
	assuredRoom = 2
)

// isNearlyFull reports whether a table with a limit is; limit 0: it has none.
func isNearlyFull(entries, limit uint32) bool {
	return limit > 0 && uint64(entries)*8 >= uint64(limit)*nearlyFull
}

// room returns how many connections all endpoints together may keep.
func room(others int, limit uint32) int {
	return max(int(uint64(limit)*enough/8)-others, int(uint64(limit)*assuredRoom/8))
}

// Fair returns the most that each owner may keep so that all together keep at most room: those with fewer keep all of theirs, and the
// others share the rest in equal parts. Without room it is 0 or less.
func Fair(counts []int, room int) int {
	sorted := slices.Sorted(slices.Values(counts))
	for i, n := range sorted {
		left := len(sorted) - i
		if n > room/left {
			return room / left
		}
		room -= n
	}
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)-1]
}

// cut is the part of an owner's connections that is to be removed: all of the ranks below rank, and some of that rank. An owner that
// opens more meanwhile loses these, too.
type cut struct {
	had    int // before
	share  int // what the owner may keep, if it had more
	excess int // how many are to be removed by rank
	rank   int
	some   int
	kept   int
}

// removes reports whether a connection of a rank is to be removed, and counts it as removed or kept.
func (c *cut) removes(rank int) bool {
	switch {
	case c.had <= c.share:
		return false
	case c.excess > 0 && rank < c.rank:
		c.excess--
		return true
	case c.excess > 0 && rank == c.rank && c.some > 0:
		c.excess, c.some = c.excess-1, c.some-1
		return true
	case c.kept < c.share:
		c.kept++
		return false
	}
	return true
}

// decision is what is to be removed from a table.
type decision struct {
	ends   *Ends
	share  int   // what each owner may keep
	excess int   // what is to be removed in all
	cuts   []cut // by owner
}

// decide returns what is to be removed from a table with a limit.
func decide(t *tally, limit uint32) *decision {
	d := &decision{ends: t.ends, share: Fair(t.counts, room(t.others, limit)), cuts: make([]cut, len(t.counts))}
	for n, count := range t.counts {
		d.cuts[n] = cut{had: count, share: d.share}
		excess := count - d.share
		if excess <= 0 {
			continue
		}
		d.excess += excess
		c := &d.cuts[n]
		c.excess, c.some = excess, excess
		for ; c.rank < ranks-1 && int(t.ranks[n][c.rank]) <= c.some; c.rank++ {
			c.some -= int(t.ranks[n][c.rank])
		}
	}
	return d
}

// worthwhile reports whether n removed connections leave noticeably more room in a table. Reading it costs as much for a few.
func worthwhile(n int, limit uint32) bool { return n > 0 && uint64(n)*64 >= uint64(limit) }

// of returns the decision with the numbers that owners have in other Ends. Endpoints that are new there keep all they have.
func (d *decision) of(ends *Ends) *decision {
	if d.ends == ends {
		return d
	}
	cuts := make(map[model.EndpointID]cut, len(d.cuts))
	for n, c := range d.cuts {
		cuts[d.ends.owners[n]] = c
	}
	now := &decision{ends: ends, share: d.share, excess: d.excess, cuts: make([]cut, len(ends.owners))}
	for n, id := range ends.owners {
		now.cuts[n] = cuts[id]
	}
	return now
}
