package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// planner makes one Plan. Its methods run in the order in which plan calls them.
type planner struct {
	Plan
	c       *Compiler
	stale   []*endpoint
	toOpen  int             // units of MaxOpen it may still spend on opening
	toClose int             // units of MaxOpen it may still spend on cleaning up
	created []classes.Class // all new classes
	early   int             // so many of them are needed before Bind
	pairs   [][2]uint32
	grown   map[*program]bool
	fresh   map[*program]bool
	retired []*program
	remaking
	hidden []uint32 // sets that were opened for programs which are refused: see crowd
}

// plan returns the writes that bring the kernel to the present state. changed: it has changed since the last plan.
func (c *Compiler) plan(changed bool) Plan {
	p := &planner{c: c, grown: map[*program]bool{}, fresh: map[*program]bool{}, remaking: remaking{again: map[string]int{}}}
	p.toOpen, p.toClose = c.pace.next(changed, c.sets.toClean())
	if !p.makeRoom() {
		p.toOpen = 0
	}
	c.endpoints.markStale(c.assigned.keptOpen())
	p.readmit()
	p.stale = c.assigned.assignStale()
	c.pace.work.Endpoints = len(p.stale)
	p.openSets()
	p.limitClasses()
	p.moveAddrs()
	p.admit()
	if c.pace.first() {
		c.assigned.leaveLacking(p.stale)
	}
	c.programs.clearAwaited()
	var early bool
	p.stale, early = c.assigned.wait(p.stale, c.pace.first() && c.classes.SomeUnknown())
	p.remember()
	p.closeSets()
	p.FollowUp = p.FollowUp || early
	p.tables()
	p.grow()
	p.rejudge()
	p.bind()
	p.drop()
	return p.Plan
}

// remember keeps the applied programs of the endpoints whose desired programs changed.
func (p *planner) remember() {
	for _, e := range p.stale {
		if !p.c.assigned.isWaiting(e) {
			p.c.back.remember(e)
		}
	}
}

// moveAddrs gives every address its new memberships, in addition to those in sets that are about to go.
func (p *planner) moveAddrs() {
	if moves := p.c.classes.Diff(); len(moves) > 0 {
		pairs := map[[2]uint32]bool{}
		p.Addrs = slices.Grow(p.Addrs, len(moves))
		for _, m := range moves {
			p.Addrs = append(p.Addrs, m.AddrChange)
			if m.From != m.To {
				pairs[[2]uint32{m.From, m.To}] = true
			}
		}
		p.pairs = slices.Collect(maps.Keys(pairs)) // their order does not show
		p.c.back.noteMoved(p.pairs)
	}
	p.created = p.c.classes.Created()
	p.early = len(p.created)
}

// closeSets drops the programs that no endpoint needs, and from the classes the sets that no program refers to then.
func (p *planner) closeSets() {
	c := p.c
	p.retired, p.FollowUp = c.programs.dropUnused()
	p.toClose, p.DropSets = c.sets.clean(p.toClose)
	moves := c.classes.Diff()
	p.LateAddrs = slices.Grow(p.LateAddrs, len(moves))
	for _, m := range moves {
		p.LateAddrs = append(p.LateAddrs, m.AddrChange)
	}
	p.FollowUp = c.classes.MoveUnknown() || p.FollowUp
	p.created = append(p.created, c.classes.Created()...)
	p.Classes = p.created
}

// classesFor returns the classes that a new table of a program gets rows for. Which sets unknown classes are in is foreseen, but not for
// sets that only tables of an earlier agent refer to.
func (p *planner) classesFor(prog *program) classes.List {
	all, foreseen := p.c.classes.All(), p.c.classes.Foreseen()
	if len(foreseen) == 0 || !slices.ContainsFunc(prog.sets, p.c.sets.uses.lacksMembers) {
		return all
	}
	return all.But(foreseen)
}

// tables gives the tables in the kernel a row for every new class, and new tables for those made after them.
func (p *planner) tables() {
	p.Rows = p.c.programs.rows[:0]
	defer func() { p.Rows = p.c.programs.keepRows(p.Rows) }()
	for _, prog := range p.retired { // they judge until Bind, and before that only see classes made for Addrs
		if prog.table != nil {
			p.addRows(prog, p.created[:p.early])
		}
	}
	retry := p.c.back.retries()
	for _, prog := range p.c.programs.all() {
		switch {
		case prog.short != nil && retry && p.replace(prog):
		case prog.short != nil:
			prog.later = false // a retry makes it
			p.Rows = append(p.Rows, prog.shortRows(p.created)...)
		case prog.table == nil: // not open yet, or being made
			prog.saw(p.created[p.early:])
		case p.fresh[prog]:
			p.addRows(prog, p.created[p.early:])
		case prog.later && !p.c.pace.postpones() && p.mayReplace(prog):
			p.replaceLate(prog)
		default:
			p.addRows(prog, p.created)
		}
	}
}

// build makes the program's table. False: a limit forbids it, and nothing has changed.
func (p *planner) build(prog *program) bool {
	if !p.c.programs.build(prog, p.classesFor(prog)) {
		return false
	}
	p.Tables = append(p.Tables, prog.table)
	return true
}

// addRows gives the program's table rows for the classes. If the table cannot give one of them a row, another table
// replaces it, perhaps in a later plan. If that cannot be made either, the table denies packets of the classes without a row.
func (p *planner) addRows(prog *program, classes []classes.Class) {
	t := prog.table
	if len(classes) == 0 || t.Interpreted() && !prog.foreign {
		return
	}
	first := len(p.Rows) // of this table
	for _, class := range classes {
		if row, ok := t.Row(class); ok && !prog.foreign {
			if was, ok := t.RowOf(class.ID); !ok || was != row { // else a class that had the number left it
				p.Rows = append(p.Rows, RowChange{t.ID, class.ID, row})
			}
			continue
		}
		if prog.limited {
			p.Rows = append(p.Rows, RowChange{t.ID, class.ID, 0})
			continue
		}
		if prog.later || !p.mayReplace(prog) {
			p.Rows = append(p.Rows, RowChange{t.ID, class.ID, p.rowUntilThen(p, prog, class)})
			prog.later = true
			continue
		}
		if p.replace(prog) {
			p.Rows = p.Rows[:first]
			return
		}
		prog.limited = true
		p.c.assigned.limitReached(prog)
	}
	rows := p.Rows[first:]
	if len(rows) == 0 {
		return
	}
	most := slices.MaxFunc(rows, func(a, b RowChange) int { return cmp.Compare(a.Class, b.Class) }).Class
	if t.Enlarge(most) && !p.fresh[prog] {
		p.Enlarged = append(p.Enlarged, t)
	}
	for _, r := range rows {
		t.SetRow(r.Class, r.Row)
	}
	if p.fresh[prog] { // it is published with them
		p.Rows = p.Rows[:first]
	}
}

// replace builds another table of the same policy. False: a limit forbids it, and nothing has changed.
func (p *planner) replace(prog *program) bool {
	before, found := prog.table, prog.foreign
	if !p.build(prog) {
		return false
	}
	if before != nil {
		p.DropTables = append(p.DropTables, before.ID)
	}
	prog.before, prog.found, prog.short, prog.later = before, found, nil, false
	p.grown[prog] = true
	p.c.back.rememberTable(prog)
	return true
}

// grow binds the larger tables.
func (p *planner) grow() {
	if len(p.grown) == 0 {
		return
	}
	for _, e := range p.c.endpoints.sorted() {
		if e.applied.policy != nil && (p.grown[e.applied.programs[0]] || p.grown[e.applied.programs[1]]) {
			p.Grow = append(p.Grow, binding(e.applied.policy, e.applied.programs))
		}
	}
}

func binding(as *model.EndpointPolicy, progs [2]*program) Binding {
	return Binding{Endpoint: as, Ingress: progs[model.Ingress].id(), Egress: progs[model.Egress].id()}
}

// rejudge finds the endpoint-directions that keep their program but deny something that they allowed before, because an
// address changed its class.
func (p *planner) rejudge() {
	if len(p.pairs) == 0 {
		return
	}
	narrowed := map[*program]bool{}
	for _, prog := range p.c.programs.all() {
		if prog.table != nil && !p.fresh[prog] && p.narrowed(prog) {
			narrowed[prog] = true
		}
	}
	if len(narrowed) == 0 {
		return
	}
	for _, e := range p.c.endpoints.sorted() {
		for d, prog := range e.applied.programs {
			if e.applied.policy != nil && !isShadow(e.id) && (e.desired.programs[d] == prog || p.c.assigned.isWaiting(e)) && narrowed[prog] {
				p.Rejudge = append(p.Rejudge, EndpointDirection{e.id, model.Direction(d)})
			}
		}
	}
}

// mostCompared is how many cells of a program's table are compared in one plan, in some 0.3 ms. A tenant's address may have tens of thousands of
// them, and all that move at once may be of different classes.
const mostCompared = 1 << 16

// narrowed reports whether the program denies to an address, in its new class, some traffic that it allowed in the old
// one, or whether it takes too long to find out.
func (p *planner) narrowed(prog *program) bool {
	with := table.Comparison{Table: prog.table, Cells: mostCompared}
	return slices.ContainsFunc(p.pairs, func(pair [2]uint32) bool { return p.c.programs.narrows(prog, pair[0], pair[1], &with) })
}

// bind binds the stale endpoints to their desired programs.
func (p *planner) bind() {
	for _, e := range p.stale {
		switch {
		case p.c.assigned.isWaiting(e):
			continue
		case e.desired.programs[0] == nil:
			if e.applied.policy != nil {
				p.Unbind = append(p.Unbind, e.id)
				p.c.back.noteChanged(e.id)
			}
			e.applied = applied{}
		case !e.isAsDesired():
			p.Bind = append(p.Bind, binding(e.desired.policy, e.desired.programs))
			if e.isJudgedOtherwise() {
				p.c.back.noteChanged(e.id)
			}
			fallthrough
		default:
			e.applied = applied{e.desired.policy, e.desired.programs}
		}
		if e.desired.policy == nil {
			p.c.endpoints.remove(e)
		}
	}
}

// drop lists the tables, classes and rules that nothing refers to any more.
func (p *planner) drop() {
	for _, prog := range p.retired {
		if prog.table != nil {
			p.DropTables = append(p.DropTables, prog.table.ID)
		}
	}
	p.DropTables = append(p.DropTables, p.c.programs.dropLost()...)
	slices.Sort(p.DropTables)
	p.DropTables = slices.Compact(p.DropTables)
	p.DropClasses = p.c.classes.Drop()
	if !p.c.endpoints.shadows.waiting() && !p.c.assigned.partial() && !p.c.pace.first() {
		p.c.rules.forgetStaged() // all shadows have been made once
	}
	p.DropRules = p.c.rules.Collect(max(p.toClose, 1))
	p.c.sets.Collect(math.MaxInt)
	p.More = p.More || p.c.crowd.wantsPlan(p.c.classes, p.c.pace.plan(), len(p.DropClasses) > 0) || p.c.programs.someLater() || p.c.sets.toClean() > 0 || p.c.rules.Loose() > 0 || len(p.c.rules.kept) > 0 || p.c.assigned.partial() || p.c.endpoints.shadows.waiting()
}
