package plan

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
)

// MaxMake is how much of tables one plan makes, in units of table.Making: some 1 ms.
const MaxMake = 40_000

// making is a table that takes several plans.
type making struct {
	*table.Making
	late []classes.Class // that have come to be known since it was last gone on with
}

// saw notes new classes.
func (prog *program) saw(created []classes.Class) {
	if prog.making != nil {
		prog.making.late = append(prog.making.late, created...)
	}
}

// stopMaking gives up the table that is being made.
func (prog *program) stopMaking() {
	if prog.making != nil {
		prog.making.Stop()
	}
	prog.making = nil
}

// admit makes the tables of the programs whose sets are open, or continues to make them, the smallest first. A plan that
// postpones large policies continues no table that an earlier plan has begun. Programs whose table exceeds a limit are
// refused.
func (p *planner) admit() {
	for _, prog := range p.c.programs.all() {
		prog.saw(p.created)
	}
	left := p.c.pace.toMake()
	for _, prog := range p.c.programs.opened() {
		if prog.making != nil && p.c.pace.postpones() {
			p.More = true
			continue
		}
		done := false
		if done, left = p.c.programs.advance(prog, p.classesFor, left); !done {
			p.More = true
			continue
		}
		if prog.table == nil {
			p.c.assigned.refuse(map[*program]error{prog: tooComplex(prog)})
			continue
		}
		p.Tables = append(p.Tables, prog.table)
		p.fresh[prog] = true
	}
}

// opened are the programs whose sets are open and that have no table yet, the smallest first, and those of shadows last.
func (s *programs) opened() []*program {
	list := slices.DeleteFunc(s.unopened(), func(prog *program) bool { return !prog.isOpen() })
	slices.SortStableFunc(list, func(a, b *program) int {
		return cmp.Or(boolToInt(a.Shadow)-boolToInt(b.Shadow), cmp.Compare(len(a.Rules), len(b.Rules)))
	})
	return list
}

// advance makes a program's table, or part of it, in at most so many units of work, and returns the units that are left. When
// it is done, the program has its table. If it then has none, a limit forbids the table.
func (s *programs) advance(prog *program, classesFor func(*program) classes.List, units int) (done bool, left int) {
	if prog.making == nil {
		all := classesFor(prog) // a list of them is long, and only the beginning needs it
		prog.making = &making{Making: table.Begin(prog.Program, all, s.limitsFor(all))}
	}
	if units <= 0 {
		return false, 0
	}
	m := prog.making
	done, m.late = m.GoOn(units, m.late), nil
	if done {
		s.made(prog, m.Table())
		prog.making = nil
	}
	return done, m.Left()
}

// build makes the program's table at once. False: a limit forbids it, and nothing has changed.
func (s *programs) build(prog *program, all classes.List) bool {
	t := table.Build(prog.Program, all, s.limitsFor(all))
	s.made(prog, t)
	return t != nil
}

// made gives a program its table; nil: it stays as it is.
func (s *programs) made(prog *program, t *table.Table) {
	if t == nil {
		return
	}
	s.lastID++
	t.ID, prog.table, prog.foreign = s.lastID, t, false
}

// limitsFor are the limits of a table for these classes.
func (s *programs) limitsFor(all classes.List) table.Limits {
	limits := s.limits
	limits.Room = s.highest(all) + roomAhead
	return limits
}

// close gives up the tables that are being made.
func (s *programs) close() {
	for _, prog := range s.list {
		prog.stopMaking()
	}
}
