package plan

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
)

// remaking is what a planner spends on tables that are made again.
type remaking struct {
	again  map[string]int      // steps of these tables, by account
	until  int                 // entries that rowUntilThen has looked at
	former map[uint32][]uint32 // see formerOf; nil: not asked for yet
}

// MaxAgain bounds the steps of the tables of one namespace that one plan makes again, in some 60 ms, because an address has come to be in
// another combination of their sets; but one is made in any case. A later plan makes the others, which judge the combination by rowUntilThen until
// then: a tenant may have hundreds of tables that take 100 ms each, and changes of others come between the plans.
const MaxAgain = 1 << 24

// mayReplace reports whether a table of the program may be made again in this plan, and counts it. One of several namespaces needs room in one
// of them.
func (p *planner) mayReplace(prog *program) bool {
	if p.c.pace.first() || prog.table == nil {
		return true
	}
	most, steps := cmp.Or(p.c.programs.limits.Again, MaxAgain), prog.table.Steps()
	accounts := p.c.ledger.accountsOf(prog)
	if len(accounts) > 0 && !slices.ContainsFunc(accounts, func(of string) bool { return p.again[of] == 0 || p.again[of]+steps <= most }) {
		return false
	}
	for _, of := range accounts {
		p.again[of] += max(steps, 1)
	}
	return true
}

// replaceLate makes a table again that an earlier plan has left without some rows.
func (p *planner) replaceLate(prog *program) {
	if p.replace(prog) {
		return
	}
	prog.later, prog.limited = false, true
	p.c.assigned.limitReached(prog)
	p.addRows(prog, p.created)
}

// mostUntil is how many entries rowUntilThen looks at in one plan, in some 10 ms.
const mostUntil = 1 << 18

// rowUntilThen returns the row of a new class in a table that is to be made again: that of a class which addresses have had, if the policy
// allows the new class all that it allows to that one. So they keep what they were allowed, and what is revoked does not wait. Otherwise it is
// row 0, which denies everything.
func (m *remaking) rowUntilThen(p *planner, prog *program, class classes.Class) uint16 {
	if !p.c.programs.standIns || prog.foreign { // rows of a foreign one have other numbers in the kernel
		return 0
	}
	if m.former == nil {
		m.former = formerOf(p.pairs)
	}
	for _, id := range m.former[class.ID] {
		was, known := p.c.classes.Class(id)
		if !known {
			continue
		}
		row, has := prog.table.Row(was)
		if !has || row == 0 {
			continue
		}
		if m.until += len(prog.Rules); m.until > mostUntil {
			return 0
		}
		if prog.OnlyWidens(was, class) {
			prog.table.StandIn(class, row)
			return row
		}
	}
	return 0
}

// formerOf returns the classes that the addresses of each class come from: those without any sets last.
func formerOf(pairs [][2]uint32) map[uint32][]uint32 {
	former := map[uint32][]uint32{}
	for _, pair := range pairs {
		former[pair[1]] = append(former[pair[1]], pair[0])
	}
	for _, list := range former {
		slices.SortFunc(list, func(a, b uint32) int { return cmp.Compare(b, a) })
	}
	return former
}
