package plan

import (
	"errors"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
)

// published is the table of a program in the kernel.
type published struct {
	table   *table.Table // nil: not there yet
	before  *table.Table // in the kernel until the last plan put a larger table in its place
	short   error        // why the replacement failed; nil: it did not. Without a table: it has to be published again
	limited bool         // the table cannot be made again with the classes that were added since
	later   bool         // a table with rows for all classes is made in a later plan; this one denies some
	foreign bool         // found in the kernel: the classes of its rows are not known
	found   bool         // before is foreign
	crowds  bool         // it was refused while endpoints were judged by it, and none may keep it: see crowd
}

// errShort is why a table found in the kernel is short.
var errShort = errors.New("an earlier agent has left its table without room for all combinations of sets that addresses are in, and those that it lacks are denied")

// id is that of the table; 0 if that is not in the kernel.
func (p *published) id() table.ID {
	if p.table == nil {
		return 0
	}
	return p.table.ID
}

// isPending reports whether the program has no table because its sets are not open yet.
func (p *published) isPending() bool { return p.table == nil && p.short == nil }

// shrink goes back to the table that was there before a larger one.
func (p *published) shrink(plan *Plan, err error) {
	now, before := p.table.ID, table.ID(0)
	p.table, p.before, p.short = p.before, nil, err
	p.foreign, p.found = p.found, false
	if p.table != nil {
		before = p.table.ID
		plan.DropTables = slices.DeleteFunc(plan.DropTables, func(id table.ID) bool { return id == before })
		plan.Rows = append(plan.Rows, p.shortRows(plan.Classes)...)
	}
	for _, list := range [][]Binding{plan.Grow, plan.Bind} {
		for i := range list {
			for _, id := range []*table.ID{&list[i].Ingress, &list[i].Egress} {
				if *id == now {
					*id = before
				}
			}
		}
	}
}

// shortRows are the rows of new classes in a table that is too small for some of them, or was not built for them: where
// it has none, they are denied. A number may have been another class's before.
func (p *published) shortRows(classes []classes.Class) []RowChange {
	var rows []RowChange
	if p.table == nil || p.table.Interpreted() && !p.foreign { // one that was found may have rows though no table of it could be made now
		return nil
	}
	for _, class := range classes {
		row := uint16(0)
		if !p.foreign { // else its rows have other numbers in the kernel
			row, _ = p.table.Row(class)
		}
		if p.table.SetRow(class.ID, row) {
			rows = append(rows, RowChange{p.table.ID, class.ID, row})
		}
	}
	return rows
}
