package chains

import (
	"cmp"
	"fmt"
	"slices"
)

// tree leads from the number in a packet's mark to the leaf of that number. Each chain tests a few bits, after all bits above. A chain
// is named after the bits that are known in it, so that a change of one number leaves the names of all other chains alone.
type tree struct {
	name   string // of the first chain
	marks  Marks
	bits   int // tested in one chain
	leaves []leafOf
	// end are the lines for numbers without a leaf.
	end []line
}

// targets know where leaves lead.
type targets interface {
	// lead returns the last lines of a chain for packets of a leaf.
	lead(to uint16) []line
}

// leafOf is the leaf of a number.
type leafOf struct{ number, to uint16 }

func (t *tree) find(number uint16) (int, bool) {
	return slices.BinarySearchFunc(t.leaves, number, func(l leafOf, n uint16) int { return cmp.Compare(l.number, n) })
}

// get returns the leaf of a number; not ok: it has none.
func (t *tree) get(number uint16) (to uint16, ok bool) {
	at, ok := t.find(number)
	if !ok {
		return 0, false
	}
	return t.leaves[at].to, true
}

func (t *tree) set(number, to uint16) {
	at, ok := t.find(number)
	if ok {
		t.leaves[at].to = to
		return
	}
	t.leaves = slices.Insert(t.leaves, at, leafOf{number, to})
}

func (t *tree) remove(number uint16) {
	if at, ok := t.find(number); ok {
		t.leaves = slices.Delete(t.leaves, at, at+1)
	}
}

// node is the part of a tree whose numbers have the same bits from low upwards.
type node struct {
	leaves []leafOf
	low    int // the lowest of the bits that all have in common; those below differ
}

func (t *tree) root() node { return node{t.leaves, t.levels() * t.bits} }

// levels returns the greatest number of chains that a packet passes, the first included.
func (t *tree) levels() int { return levels(t.marks.width, t.bits) }

func levels(width, bits int) int { return (width + bits - 1) / bits }

// chainOf returns the name of a node's chain.
func (t *tree) chainOf(n node) string {
	if n.low >= t.levels()*t.bits {
		return t.name
	}
	return fmt.Sprintf("%s-c%d.%x", t.name, n.low, n.leaves[0].number>>n.low)
}

// children returns the parts of a node, by ascending number. If there is only one part, it returns the parts of that instead.
func (t *tree) children(n node) []node {
	for {
		var out []node
		low := n.low - t.bits
		for rest := n.leaves; len(rest) > 0; {
			end := 1
			for end < len(rest) && rest[end].number>>low == rest[0].number>>low {
				end++
			}
			out = append(out, node{rest[:end], low})
			rest = rest[end:]
		}
		if len(out) != 1 || low == 0 || out[0].whole() {
			return out
		}
		n = out[0]
	}
}

// whole reports whether all possible numbers of a node have the same leaf.
func (n node) whole() bool {
	return len(n.leaves) == 1<<n.low && !slices.ContainsFunc(n.leaves, func(l leafOf) bool { return l.to != n.leaves[0].to })
}

// test returns the match for the numbers of a node, or for one number with low 0.
func (t *tree) test(number uint16, low int, only sides) string {
	mask := t.marks.number() &^ (1<<(t.marks.shift+low) - 1)
	return t.marks.match(uint32(number)<<t.marks.shift&mask, mask, only)
}

// under returns the lines of a leaf, restricted to its number.
func (t *tree) under(number uint16, low int, lines []line) []line {
	out := make([]line, len(lines))
	for i, l := range lines {
		l.match = both(l.match, t.test(number, low, l.only))
		l.only = bothWays // the match says it
		out[i] = l
	}
	return out
}

// leads reports whether a child of a node needs no chain of its own: all its numbers have one leaf.
func (c node) leads() bool { return len(c.leaves) == 1 || c.whole() }

// below returns the children of a node that have chains of their own.
func (t *tree) below(n node) []node { return slices.DeleteFunc(t.children(n), node.leads) }

// lines returns the rules of a node's chain.
func (t *tree) lines(n node, to targets) (out []line) {
	for _, c := range t.children(n) {
		switch first := c.leaves[0]; {
		case len(c.leaves) == 1:
			out = append(out, t.under(first.number, 0, to.lead(first.to))...)
		case c.whole():
			out = append(out, t.under(first.number, c.low, to.lead(first.to))...)
		default:
			out = append(out, line{match: t.test(first.number, c.low, bothWays), verdict: "-g " + t.chainOf(c)})
		}
	}
	return append(out, t.end...)
}

// first returns the first chain, which begins with the given lines.
func (t *tree) first(top []line, to targets) Chain {
	return t.marks.made(t.name, slices.Concat(top, t.lines(t.root(), to)))
}

// others returns all chains but the first.
func (t *tree) others(to targets) []Chain { return t.chainsBelow(t.root(), to) }

func (t *tree) chainsBelow(n node, to targets) (out []Chain) {
	for _, c := range t.below(n) {
		out = append(append(out, t.made(c, to)), t.chainsBelow(c, to)...)
	}
	return out
}

// made makes the chain of a node.
func (t *tree) made(n node, to targets) Chain { return t.marks.made(t.chainOf(n), t.lines(n, to)) }

// way has the parts of a tree that a change of one number may alter: the chains on the way to it, and the nodes they lead to.
type way struct {
	passed []node
	refers map[string]node
}

func (t *tree) way(number uint16) way {
	w := way{refers: map[string]node{}}
	n, ok := t.root(), true
	for ok {
		w.passed = append(w.passed, n)
		ok = false
		for _, c := range t.below(n) {
			w.refers[t.chainOf(c)] = c
			if c.leaves[0].number>>c.low == number>>c.low {
				n, ok = c, true
			}
		}
	}
	return w
}

// past has what must be known of a tree from before a change of one number.
type past struct {
	number uint16
	names  map[string]bool // of the chains that the change may alter
}

// now is asked before a change.
func (t *tree) now(number uint16) past {
	p := past{number, map[string]bool{}}
	for name := range t.way(number).refers {
		p.names[name] = true
	}
	return p
}

// since is asked after a change. It returns the chains below the first one that may differ, and the names of those that no longer
// exist. The first chain may differ in any case.
func (t *tree) since(before past, to targets) (set []Chain, gone []string) {
	after := t.way(before.number)
	kept := map[string]bool{}
	var fresh func(n node)
	fresh = func(n node) { // a chain that was not there, or is on the way
		set = append(set, t.made(n, to))
		for _, c := range t.below(n) {
			name := t.chainOf(c)
			if !kept[name] && !before.names[name] {
				fresh(c)
			}
			kept[name] = true
		}
	}
	for _, n := range after.passed[1:] {
		kept[t.chainOf(n)] = true
		fresh(n)
	}
	for name, n := range after.refers {
		if !kept[name] && !before.names[name] {
			fresh(n)
		}
		kept[name] = true
	}
	for name := range before.names {
		if !kept[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return once(set), gone
}

// once returns the first chain of each name.
func once(list []Chain) []Chain {
	slices.SortStableFunc(list, func(a, b Chain) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(list, func(a, b Chain) bool { return a.Name == b.Name })
}
