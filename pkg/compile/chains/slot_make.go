package chains

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// rowInfo has the properties of a row that are kept without its text.
type rowInfo struct {
	to      target // of all packets, if uniform
	uniform bool
	short   int // the number of lines that can replace its chains; 0: they cannot
	size    int // in rules
	classes int // the classes in the tree with this row
}

// info returns the rowInfo of a row, and computes it at the first call.
func (s *Slot) info(row uint16) (*rowInfo, error) {
	if i := s.used[row]; i != nil {
		return i, nil
	}
	l, err := s.rows.leaf(row)
	if err != nil {
		return nil, err
	}
	i := &rowInfo{to: l.rest(), uniform: l.uniform() && l.rest().isEffect()}
	if !i.uniform {
		i.short = len(s.w.short(l))
		i.size = s.w.size(l)
	}
	for index := range l {
		if rest := l[index].rest; rest.isBase() {
			if err := s.countBase(int(firstBase - rest)); err != nil {
				return nil, err
			}
		}
	}
	s.used[row] = i
	return i, nil
}

func (s *Slot) countBase(b int) error {
	if _, ok := s.bases[b]; ok {
		return nil
	}
	l, err := s.rows.common(b)
	if err != nil {
		return err
	}
	s.bases[b] = false
	s.baseSize += s.w.size(l)
	return nil
}

func (s *Slot) refer(row uint16) {
	i := s.used[row]
	i.classes++
	switch {
	case !s.apart(i):
		s.size += i.short
	case i.classes == 1:
		s.size += i.size
	}
}

// release reports whether the row was the last with chains of its own.
func (s *Slot) release(row uint16) bool {
	i := s.used[row]
	i.classes--
	switch {
	case !s.apart(i):
		s.size -= i.short
		return false
	case i.classes > 0:
		return false
	}
	s.size -= i.size
	return true
}

// apart reports whether a row has chains of its own. The lines of a short row replace them if its rest is that of the tree.
func (s *Slot) apart(i *rowInfo) bool {
	plain := s.used[s.plain]
	return !i.uniform && (i.short == 0 || i != plain && !(plain.uniform && i.to == plain.to))
}

// Rules returns an upper bound for the rules of the slot.
func (s *Slot) Rules() int { return s.size + perLeaf(s)*(len(s.tree.leafs)+1) + s.shared() + 8 }

// perLeaf returns an upper bound for the rules of a class in the tree, beside those of its row: the jump there, and a chain's end.
func perLeaf(s *Slot) int { return 1 + len(s.tree.end) }

// shared returns the number of rules in chains that rows share.
func (s *Slot) shared() int {
	n := s.baseSize
	for _, p := range s.w.pro.list {
		n += 2 * searchRules(len(p.keys.spans), s.w.o.Shape.arity(len(p.keys.spans), 1))
	}
	return n
}

// check returns an error if the slot with some rules more is too large.
func (s *Slot) check(more int) error {
	most := s.w.o.MaxRules
	if most == 0 {
		most = MaxRules
	}
	if n := s.Rules() + more; n > most {
		return &TooLargeError{"rules", n, most}
	}
	return nil
}

// lead returns the last lines of chains for classes with a row.
func (s *Slot) lead(row uint16) []line {
	switch i := s.used[row]; {
	case i.uniform:
		return s.w.send("", i.to, opener)
	case !s.apart(i):
		return s.w.short(s.leafOf(row))
	}
	return []line{{verdict: "-g " + s.w.rowName(row, opener)}}
}

// top returns the first rules of the slot: they replace the slot's number in the mark by the class of the other end. The number is
// cleared first: so it is 0 if the address has no entry, or if the chain with the lookup was flushed.
func (s *Slot) top() []line {
	name := classIngress
	if s.dir == model.Egress {
		name = classEgress
	}
	return []line{{verdict: fmt.Sprintf("-j MARK --set-xmark 0x0/%#x", s.w.o.Marks.number())}, {verdict: "-j " + s.w.o.Names.Chain(name)}}
}

// first returns the slot's first chain.
func (s *Slot) first() Chain {
	if s.flat() {
		return s.w.o.Marks.made(s.w.name, s.tree.end)
	}
	body, _ := s.tree.lines(s.tree.root())
	return s.w.o.Marks.made(s.w.name, slices.Concat(s.top(), body))
}

// Chains returns all chains of the slot. Packets enter the first one.
func (s *Slot) Chains() []Chain {
	out := []Chain{s.first()}
	if !s.flat() {
		out = append(out, s.tree.chains(s.tree.root(), nil)[1:]...)
	}
	for _, row := range slices.Sorted(maps.Keys(s.used)) {
		if i := s.used[row]; i.classes > 0 && s.apart(i) {
			out = append(out, s.chainsOf(row)...)
		}
	}
	s.profiles = 0
	for b := range s.bases {
		s.bases[b] = false
	}
	return append(out, s.common()...)
}

// chainsOf returns a row's own chains.
func (s *Slot) chainsOf(row uint16) []Chain {
	return s.w.row(row, s.leafOf(row))
}

func (s *Slot) leafOf(row uint16) *leaf {
	return s.intact(s.rows.leaf(row)) // info has read it before
}

// intact returns the leaf. If there was an error, it notes that and returns a leaf that denies everything.
func (s *Slot) intact(l *leaf, err error) *leaf {
	if err == nil {
		return l
	}
	if s.fault == nil {
		s.fault = fmt.Errorf("make the chains of %s: %w", s.w.name, err)
	}
	return &leaf{}
}

// common returns the chains that rows share and that were not returned before.
func (s *Slot) common() (out []Chain) {
	for _, b := range slices.Sorted(maps.Keys(s.bases)) {
		if s.bases[b] {
			continue
		}
		s.bases[b] = true
		out = append(out, s.w.base(b, s.intact(s.rows.common(b)))...) // countBase has read it before
	}
	for ; s.profiles < len(s.w.pro.list); s.profiles++ {
		out = append(append(out, s.w.profile(s.profiles, opener)...), s.w.profile(s.profiles, answerer)...)
	}
	return out
}
