package chains

import (
	"cmp"
	"slices"
)

// layout is the tree from classes to rows. It has only the classes whose row differs from the plain one. So a class that comes with
// prefixes of another policy, and has the plain row here, changes no chain of this slot. The number of rules of all slots does not
// depend on the number of classes, but on how many of them each policy distinguishes.
type layout struct {
	rows *rowChains
	tree tree
	// plain is the row of classes that are not in the tree: mostly that of addresses in no set. If it allows something, the tree has
	// number 0, which is no class's, and denies it.
	plain uint16
	known classSet
	refs  []int32 // by row, see users
	size  int     // of the rows in use, in rules
}

// fill makes the tree, if there was none.
func (l *layout) fill(classes []leafOf, plain uint16) {
	for _, c := range classes {
		l.known.set(c.number, true)
	}
	l.arrange(classes, plain)
}

// know notes that the slot knows a class. Until put gives it a row, it has the plain one.
func (l *layout) know(number uint16) { l.known.set(number, true) }

// forget notes that it does not.
func (l *layout) forget(number uint16) { l.known.set(number, false) }

// all returns the row of each known class.
func (l *layout) all() []leafOf {
	out := make([]leafOf, 0, l.known.count)
	for number := range l.known.all {
		out = append(out, leafOf{number, l.row(number)})
	}
	return out
}

// row returns the row of a number.
func (l *layout) row(number uint16) uint16 {
	if to, ok := l.tree.get(number); ok {
		return to
	}
	return l.plain
}

// has reports whether a number has the row.
func (l *layout) has(number, row uint16) bool { return l.row(number) == row }

// users returns the number of classes in the tree with a row. The end of the tree is one more of the plain row.
func (l *layout) users(row uint16) int {
	if int(row) >= len(l.refs) {
		return 0
	}
	return int(l.refs[row])
}

// allowedAsPlain reports whether a number has the plain row, and that allows something.
func (l *layout) allowedAsPlain(number uint16) bool {
	_, had := l.tree.get(number)
	return !had && !l.denies(l.plain)
}

// crowded reports whether so many classes have a row that it should become the plain one.
func (l *layout) crowded(row uint16) bool {
	return row != l.plain && overtakes(l.users(row), l.known.count-l.distinguished())
}

// become makes a row the plain one, and returns the one that was.
func (l *layout) become(plain uint16) (was uint16) {
	was = l.plain
	l.arrange(l.all(), plain)
	return was
}

// arrange makes the tree of classes, of which those with the row plain are left out.
func (l *layout) arrange(classes []leafOf, plain uint16) {
	l.plain, l.size = plain, 0
	clear(l.refs)
	l.refer(plain)
	leaves := slices.DeleteFunc(classes, func(c leafOf) bool { return c.to == plain })
	if !l.denies(plain) {
		leaves = append(leaves, leafOf{0, 0})
	}
	slices.SortFunc(leaves, func(a, b leafOf) int { return cmp.Compare(a.number, b.number) })
	for _, c := range leaves {
		l.refer(c.to)
	}
	l.tree.leaves, l.tree.end = leaves, l.end()
}

// put gives a number another row. It returns the chains that differ, except the first one and those that rows share, and the names of
// those that are gone.
func (l *layout) put(number, row uint16) (set []Chain, gone []string) {
	was, had := l.tree.get(number)
	before := l.tree.now(number)
	var own []Chain
	if row == l.plain {
		l.tree.remove(number)
	} else {
		fresh := l.users(row) == 0 && l.apart(row)
		l.tree.set(number, row)
		l.refer(row)
		if fresh {
			own = l.rows.chains(row)
		}
	}
	set, gone = l.tree.since(before, l)
	if had && l.release(was) {
		for _, c := range l.rows.chains(was) {
			gone = append(gone, c.Name)
		}
	}
	return append(set, own...), gone
}

func (l *layout) refer(row uint16) {
	i := l.rows.known(row)
	for int(row) >= len(l.refs) {
		l.refs = append(l.refs, 0)
	}
	l.refs[row]++
	switch {
	case !l.apart(row):
		l.size += i.short
	case l.refs[row] == 1:
		l.size += i.size
	}
}

// release reports whether the row was the last with chains of its own.
func (l *layout) release(row uint16) bool {
	i := l.rows.known(row)
	l.refs[row]--
	switch {
	case !l.apart(row):
		l.size -= i.short
		return false
	case l.refs[row] > 0:
		return false
	}
	l.size -= i.size
	return true
}

// apart reports whether a row has chains of its own. The lines of a short row replace them if its rest is that of the tree.
func (l *layout) apart(row uint16) bool {
	i, plain := l.rows.known(row), l.rows.known(l.plain)
	return !i.uniform && (i.short == 0 || i != plain && !(plain.uniform && i.to == plain.to))
}

func (l *layout) denies(row uint16) bool { return l.rows.known(row).denies }

// distinguished returns the number of classes in the tree.
func (l *layout) distinguished() int {
	if l.denies(l.plain) {
		return len(l.tree.leaves)
	}
	return len(l.tree.leaves) - 1
}

// lead returns the last lines of chains for classes with a row.
func (l *layout) lead(row uint16) []line {
	switch i := l.rows.known(row); {
	case i.uniform:
		return l.rows.send(i)
	case !l.apart(row):
		return l.rows.short(row)
	}
	return l.rows.jump(row)
}

// end returns the last lines of chains of the tree, which lead to the plain row.
func (l *layout) end() []line {
	i := l.rows.known(l.plain)
	if i.uniform || l.apart(l.plain) {
		return l.lead(l.plain)
	}
	return append(l.rows.short(l.plain), l.rows.send(i)...)
}

// first returns the slot's first chain. If all classes have the plain row, it needs no lookup of the class, which is in top.
func (l *layout) first(top []line) Chain {
	if l.distinguished() == 0 {
		return l.tree.marks.made(l.tree.name, l.tree.end)
	}
	return l.tree.first(top, l)
}

// chains returns the other chains of the tree, and those of the rows in use.
func (l *layout) chains() (out []Chain) {
	if l.distinguished() > 0 {
		out = l.tree.others(l)
	}
	for i, n := range l.refs {
		if row := uint16(i); n > 0 && l.apart(row) {
			out = append(out, l.rows.chains(row)...)
		}
	}
	return out
}

// rules returns an upper bound for the rules of these chains.
func (l *layout) rules() int { return l.size + l.perLeaf()*(len(l.tree.leaves)+1) }

// perLeaf returns an upper bound for the rules of a class in the tree, beside those of its row: the jump there, and a chain's end.
func (l *layout) perLeaf() int { return 1 + len(l.tree.end) }
