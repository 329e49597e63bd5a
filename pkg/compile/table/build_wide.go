package table

import (
	"encoding/binary"
	"math"
	"slices"
)

// A wide table is for many rows and many columns. Most of its rows differ from another row, their base, in a few cells
// only: those are the row's exceptions. A set of addresses is light if the entries that refer to it fit few columns, and
// heavy else. Classes that are in the same heavy sets have the same base; the light sets make the exceptions.

// widePlan says how the rows of a wide table come about.
type widePlan struct {
	steps, bytes int // what the table takes, at most
	light        []bool
	x            *wideIndex
}

// wideIndex is what the plans for one table are made of.
type wideIndex struct {
	entries [][]int32 // by index in refers: the entries that refer to the set
	sets    [][]int32 // by kind: indexes in refers of its sets
	cells   []int     // by index in refers: the columns that those entries fit
	steps   []int     // by index in refers: the steps to look at all of them
	first   []int32   // entry -> where its columns begin in columns
	columns []int32
}

// planWide returns the plan that takes the fewest steps. A dense row takes perRow.
func (b *builder) planWide(perRow int) *widePlan {
	x := b.indexWide()
	best := &widePlan{steps: math.MaxInt}
	for _, most := range []int{16, 256, 4096, 1 << 16} {
		if p := b.planBelow(x, perRow, most); p.steps < best.steps && !b.stopped {
			best = p
		}
	}
	return best
}

func (b *builder) indexWide() *wideIndex {
	refers, n := b.t.refers, len(b.rules)
	x := &wideIndex{
		entries: make([][]int32, len(refers)), sets: make([][]int32, len(b.of)),
		cells: make([]int, len(refers)), steps: make([]int, len(refers)),
	}
	x.invert(&b.columns, n)
	groups := b.groupCosts()
	for i := range b.rules {
		cells, steps := 0, 0
		if !b.spend(6 + int(x.first[i+1]-x.first[i])/8) {
			return x
		}
		for _, col := range x.columns[x.first[i]:x.first[i+1]] {
			cells++
			steps += b.columns.steps(int(col), n)
		}
		for g, fits := range b.columns.groups {
			if fits.has(i) {
				cells, steps = cells+groups[g].cells, steps+groups[g].steps
			}
		}
		r := &b.rules[i]
		for _, number := range [...]uint32{r.In[0], r.In[1], r.In[2], r.NotIn[0], r.NotIn[1], r.NotIn[2]} {
			if number == 0 {
				continue
			}
			s, ok := slices.BinarySearch(refers, number)
			if ok && (len(x.entries[s]) == 0 || last(x.entries[s]) != int32(i)) {
				x.entries[s] = append(x.entries[s], int32(i))
				x.cells[s] += cells
				x.steps[s] += 1 + steps
			}
		}
	}
	for kind, c := range b.of {
		b.spend(1 + len(c.Sets))
		for _, number := range c.Sets {
			if s, ok := slices.BinarySearch(refers, number); ok {
				x.sets[kind] = append(x.sets[kind], int32(s))
			}
		}
	}
	return x
}

// groupCosts returns for each group the number of its columns, and the steps to look at them.
func (b *builder) groupCosts() []struct{ cells, steps int } {
	all := make([]struct{ cells, steps int }, len(b.columns.groups))
	for col := range b.columns.list {
		g := &all[b.columns.list[col].group]
		g.cells, g.steps = g.cells+1, g.steps+b.columns.steps(col, len(b.rules))
	}
	return all
}

// invert lists the columns of every entry with ports.
func (x *wideIndex) invert(c *columns, n int) {
	x.first = make([]int32, n+1)
	for i := range c.list {
		for _, e := range c.list[i].entries {
			x.first[e+1]++
		}
	}
	for i := range n {
		x.first[i+1] += x.first[i]
	}
	x.columns = make([]int32, x.first[n])
	at := slices.Clone(x.first)
	for i := range c.list {
		for _, e := range c.list[i].entries {
			x.columns[at[e]] = int32(i)
			at[e]++
		}
	}
}

// columnsOf calls do for each column that an entry fits.
func (b *builder) columnsOf(x *wideIndex, entry int, do func(col int)) {
	for _, col := range x.columns[x.first[entry]:x.first[entry+1]] {
		do(int(col))
	}
	for g, fits := range b.columns.groups {
		if fits.has(entry) {
			for col := b.columns.bounds[g]; col < b.columns.bounds[g+1]; col++ {
				do(col)
			}
		}
	}
}

// planBelow is the plan in which sets are light whose entries fit no more than so many columns.
func (b *builder) planBelow(x *wideIndex, perRow, most int) *widePlan {
	p := &widePlan{light: make([]bool, len(x.cells)), x: x}
	for s, cells := range x.cells {
		p.light[s] = cells <= most
	}
	sports, n := len(b.sports.list), len(b.rules)
	bases, exceptions := map[string]bool{}, 0
	var key []byte
	for kind := range b.of {
		key = p.baseKey(key[:0], b.of[kind].Family, kind)
		bases[string(key)] = true
		b.spend(1 + len(x.sets[kind])/4)
		p.steps += 32
		if sports > 1 {
			p.steps += sports * n / 64
		}
		for _, s := range x.sets[kind] {
			if p.light[s] {
				p.steps += x.steps[s] * sports
				exceptions += x.cells[s] * sports
			}
		}
	}
	p.steps += len(bases) * (perRow + n/8)
	p.bytes = len(bases)*int(b.blocksPerRow())*2 + exceptions*4 + len(b.of)*8
	return p
}

// baseKey appends what the base of a kind depends on.
func (p *widePlan) baseKey(key []byte, family uint8, kind int) []byte {
	key = append(key, family)
	for _, s := range p.x.sets[kind] {
		if !p.light[s] {
			key = binary.LittleEndian.AppendUint32(key, uint32(s))
		}
	}
	return key
}
