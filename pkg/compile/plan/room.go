package plan

const (
	// roomAhead is for how many more classes the tables have room before policies are opened in parts.
	roomAhead = 1024
	// enlargedAhead is how many tables one plan enlarges for that, if they are small. A small table takes some 0.1 ms.
	enlargedAhead = 8
	// enlargedRows is how many blocks of rows take as long as a small table.
	enlargedRows = 512
)

// makeRoom enlarges tables before the classes come that need the room. It is for the parts of large policies: else one of
// them would enlarge all tables of the node in one plan, whenever there are twice as many classes as before, and other
// changes would wait for it. False: there are more tables without room, so that this plan opens nothing.
func (p *planner) makeRoom() (enough bool) {
	if p.c.pace.postpones() || p.c.pace.first() {
		return true
	}
	most, done := p.c.classes.Highest()+roomAhead, 0
	for _, prog := range p.c.programs.all() {
		if prog.table == nil || prog.short != nil || prog.foreign || !prog.table.Lacks(most) {
			continue
		}
		if done >= enlargedAhead {
			p.More = true
			return false
		}
		prog.table.Enlarge(most)
		p.Enlarged = append(p.Enlarged, prog.table)
		done += 1 + len(prog.table.Rows)/enlargedRows
	}
	return true
}
