package bpf

import (
	"errors"
	"slices"
)

// comparison is what is left to compare since the last resync: maps with the entries that were written, and the slots of published
// policies. There may be hundreds of thousands of entries, and hundreds of slots, each with a row for every class on the node. So each Apply
// reads some, and changes come in between.
type comparison struct {
	atOnce   int // entries of maps that one Apply reads; a map with more is read in parts, by Applies that read no other
	tables   []mapTable
	slots    []uint32
	errs     []error // of slots so far: one that cannot be read does not keep others from being compared
	deferred bool    // the last Apply had changes, and compared nothing
}

// Of published policies one Apply reads about comparedAtOnce bytes, of maps as many entries as entriesAtOnce. Each takes about 2 ms, for which a
// change that comes in meanwhile waits.
const (
	comparedAtOnce = 1 << 18
	entriesAtOnce  = 1 << 14
	// partAtOnce is how many entries one Apply reads of a map with more than entriesAtOnce. A prefix takes a microsecond.
	partAtOnce = 1 << 12
)

func (c *comparison) unfinished() bool { return len(c.tables)+len(c.slots) > 0 }

// due reports whether the present Apply compares a part. One with changes leaves that to the next one, which may have changes, too: else
// somebody who changes policy all the time would put it off for ever.
func (c *comparison) due(changed bool) bool {
	c.deferred = changed && !c.deferred
	return c.unfinished() && !c.deferred
}

// begin notes the tables and slots that are to be compared. Slots that are left go on: else each attempt would begin them again while something
// else fails. So do tables, and those that are done come after them.
func (c *comparison) begin(tables []mapTable, slots []uint32) {
	for _, t := range tables {
		if !slices.Contains(c.tables, t) {
			c.tables = append(c.tables, t)
		}
	}
	if len(c.slots) == 0 {
		c.slots = slots
	}
}

// nextTables returns the tables that the present Apply compares. They are no longer left.
func (c *comparison) nextTables() []mapTable {
	n, entries := 0, 0
	for _, t := range c.tables {
		if entries += t.Len(); n > 0 && entries > c.atOnce {
			break
		}
		n++
	}
	next := c.tables[:n]
	c.tables = c.tables[n:]
	return next
}

// read compares a table, or a part of one that has more entries than one Apply reads. done: nothing of it is left.
func (c *comparison) read(t mapTable) (repairs int, done bool, err error) {
	if t.Len() > c.atOnce {
		return t.ResyncSome(partAtOnce)
	}
	repairs, err = t.Resync()
	return repairs, true, err
}

// putBack notes that a table of nextTables is left: the next Apply goes on with it.
func (c *comparison) putBack(t mapTable) { c.tables = slices.Insert(c.tables, 0, t) }

// compared notes that some slots have been compared, which are left, and errors. It returns all errors of slots when none is left.
func (c *comparison) compared(left []uint32, errs []error) error {
	if c.slots, c.errs = left, append(c.errs, errs...); len(c.slots) > 0 {
		return nil
	}
	errs, c.errs = c.errs, nil
	return errors.Join(errs...)
}
