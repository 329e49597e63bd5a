package plan

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// programs are the applied and desired Programs of endpoints, each of them once, and their tables.
type programs struct {
	limits    table.Limits
	classes   *classes.Classes
	sets      *setNumbers
	rules     *ruleNumbers
	list      []*program // in order of creation; those that no endpoint needs go at the end of each plan
	byHash    map[uint64][]*program
	lastID    table.ID
	lost      []table.ID  // in the kernel at the start, but unknown: to be dropped by the first plan
	mostClass uint32      // see highest
	rows      []RowChange // space for rows of new classes; see keepRows
	standIns  bool        // see Options
}

func newPrograms(limits table.Limits, c *classes.Classes, sets *setNumbers, rules *ruleNumbers) *programs {
	return &programs{limits: limits, classes: c, sets: sets, rules: rules, byHash: map[uint64][]*program{}}
}

// all returns every program, in order of creation.
func (s *programs) all() []*program { return s.list }

// of returns the program whose table has the id; nil if there is none.
func (s *programs) of(id table.ID) *program {
	i := slices.IndexFunc(s.list, func(prog *program) bool { return prog.table != nil && prog.table.ID == id })
	if i < 0 {
		return nil
	}
	return s.list[i]
}

// equal returns the program equal to p, whose sets have these lists; nil if there is none. It may keep p's Program.
func (s *programs) equal(p *program, lists [][]netip.Prefix) *program {
	for _, old := range s.byHash[p.hash] {
		if old.direction != p.direction || !slices.Equal(old.Rules, p.Rules) {
			continue
		}
		if old.foreign && old.IDs[0].Point == 0 { // now it is known which rules these are
			old.Program = p.Program
			old.table.Program = p.Program
			s.sets.load(p.sets, lists, true)
			return old
		}
		if slices.Equal(old.IDs, p.IDs) {
			return old
		}
	}
	return nil
}

// add adds a program, whose sets have these lists. No other may be equal to it.
func (s *programs) add(prog *program, lists [][]netip.Prefix) {
	s.register(prog)
	s.sets.load(prog.sets, lists, false)
}

// register holds the numbers that a program uses, and lists it.
func (s *programs) register(prog *program) {
	s.sets.refer(prog.sets)
	for _, num := range prog.rules {
		s.rules.Hold(num)
	}
	s.list = append(s.list, prog)
	s.byHash[prog.hash] = append(s.byHash[prog.hash], prog)
}

// retire drops what a program held that no endpoint needs any more.
func (s *programs) retire(prog *program) {
	prog.gone = true
	prog.stopMaking()
	s.sets.unrefer(prog.sets)
	s.sets.past.forget(prog)
	for _, num := range prog.rules {
		s.rules.Drop(num)
	}
	same := slices.DeleteFunc(s.byHash[prog.hash], func(p *program) bool { return p == prog })
	if len(same) == 0 {
		delete(s.byHash, prog.hash)
	} else {
		s.byHash[prog.hash] = same
	}
}

// dropUnused drops the programs that no endpoint needs, and returns them. kept: some stay because an endpoint may go back to
// them.
func (s *programs) dropUnused() (dropped []*program, kept bool) {
	for _, prog := range s.list {
		switch {
		case prog.desired > 0, prog.awaited:
		case prog.kept > 0:
			kept = true
		default:
			s.retire(prog)
			dropped = append(dropped, prog)
		}
	}
	s.list = slices.DeleteFunc(s.list, func(prog *program) bool { return prog.gone })
	return dropped, kept
}

// clearAwaited is called before endpoints await programs.
func (s *programs) clearAwaited() {
	for _, prog := range s.list {
		prog.awaited = false
	}
}

// unopened are the programs that have no table yet, those with the fewest sets left to be opened first, and those of shadows
// last.
func (s *programs) unopened() []*program {
	var list []*program
	for _, prog := range s.list {
		if prog.isPending() && prog.desired > 0 {
			list = append(list, prog)
		}
	}
	slices.SortStableFunc(list, func(a, b *program) int {
		if a.Shadow != b.Shadow {
			return boolToInt(a.Shadow) - boolToInt(b.Shadow)
		}
		return cmp.Compare(len(a.sets)-a.open, len(b.sets)-b.open)
	})
	return list
}

// someLater reports whether tables are to be made again in a later plan.
func (s *programs) someLater() bool {
	return slices.ContainsFunc(s.list, func(prog *program) bool { return prog.later })
}

// highest is the highest class for which tables have room: the highest that there has been, so that classes that come and
// go do not have all tables grow again and again. When by far fewer are left, their number counts.
func (s *programs) highest(all classes.List) uint32 {
	last := all.Last()
	if last < s.mostClass/8 {
		s.mostClass = 0
	}
	s.mostClass = max(s.mostClass, last)
	return s.mostClass
}

// narrows reports whether the program denies to class to some traffic that it allows to class from, or may have allowed to it if the sets
// of that are unknown.
func (s *programs) narrows(prog *program, from, to uint32, with *table.Comparison) bool {
	t := prog.table
	switch {
	case t == nil:
		return false
	case t.Interpreted() || s.classes.Unknown(from):
		return s.classes.Differ(from, to, prog.sets)
	}
	was, _ := t.RowOf(from)
	is, _ := t.RowOf(to)
	return with.Narrower(was, is)
}

// narrowing returns the programs that deny to class to some traffic that they allow to class from.
func (s *programs) narrowing(from, to uint32) map[*program]bool {
	some := map[*program]bool{}
	for _, prog := range s.list {
		if s.narrows(prog, from, to, &table.Comparison{Table: prog.table, Cells: math.MaxInt}) {
			some[prog] = true
		}
	}
	return some
}

// adopt takes over a table in the kernel. How its rows are numbered there does not matter, since it is never
// written to: the first new class makes another take its place.
func (s *programs) adopt(t SnapshotTable, names map[uint32]string) *program {
	p := &match.Program{Rules: t.Rules, IDs: make([]model.RuleID, len(t.Rules))}
	for i := range t.Rules {
		num := t.Rules[i].Id
		p.IDs[i] = model.RuleID{Direction: t.Direction}
		if text, ok := names[num]; ok {
			p.IDs[i] = placeholder(num, text)
			p.IDs[i].Direction = t.Direction
			s.rules.expect(text, t.Direction, num)
		}
	}
	prog := newProgram(t.Direction, p)
	if prog.foreign = true; t.Short {
		prog.short = errShort
	}
	for _, num := range prog.sets {
		p.Sets = append(p.Sets, s.sets.Key(num))
	}
	if prog.table = table.Build(p, s.classes.All(), s.limits); prog.table == nil { // made when limits were others
		prog.table = table.Build(p, classes.List{}, table.Limits{Interpret: true})
	}
	prog.table.ID = t.ID
	s.lastID = max(s.lastID, t.ID)
	prog.cost, _ = costOf(p, func(int) bool { return true })
	s.register(prog)
	return prog
}

// noteUnreadable notes the id of a table in the kernel that could not be read.
func (s *programs) noteUnreadable(id table.ID) {
	s.lastID = max(s.lastID, id)
	s.lost = append(s.lost, id)
}

// dropLost returns the tables that could not be read, once.
func (s *programs) dropLost() []table.ID {
	ids := s.lost
	s.lost = nil
	return ids
}

// tables returns all tables in the kernel, by ascending id.
func (s *programs) tables() []*table.Table {
	var all []*table.Table
	for _, prog := range s.list {
		if prog.table != nil {
			all = append(all, prog.table)
		}
	}
	slices.SortFunc(all, func(a, b *table.Table) int { return int(a.ID) - int(b.ID) })
	return all
}

// mostRowsKept is how many rows of new classes there is space for from one plan to the next.
const mostRowsKept = 1 << 14

// keepRows returns the rows that a plan has collected in the space for them, and keeps the space. To make it for each part of a large policy,
// as it grows, takes several times what the rows take.
func (s *programs) keepRows(collected []RowChange) (rows []RowChange) {
	if cap(collected) <= mostRowsKept {
		s.rows = collected[:0]
	}
	if len(collected) == 0 {
		return nil
	}
	return slices.Clone(collected)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
