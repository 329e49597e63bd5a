package match

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// OnlyWidens reports whether every packet that the program allows to class from is allowed to class to, as far as that shows entry by entry:
// whatever holds for one of them only allows it to the second, or denies it to the first. Then the walk for the second passes the same
// entries, until it is allowed.
func (p *Program) OnlyWidens(from, to classes.Class) bool {
	if from.Family != to.Family {
		return false
	}
	differ := apart(from.Sets, to.Sets)
	if len(differ) == 0 {
		return true
	}
	family := uint8(bpf.RuleV4)
	if to.Family == 6 {
		family = bpf.RuleV6
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Flags&family == 0 || !mentions(r, differ) {
			continue
		}
		was, is := holdsFor(r, from), holdsFor(r, to)
		if was == is || r.Action == bpf.RuleLog {
			continue
		}
		if is && r.Action != bpf.RuleAllow || was && r.Action != bpf.RuleDeny {
			return false // a pass or a skip leads elsewhere
		}
	}
	return true
}

// holdsFor reports whether the address conditions of an entry hold for a class.
func holdsFor(r *bpf.Rule, c classes.Class) bool { return c.HasAll(r.In[:]) && c.HasNone(r.NotIn[:]) }

// mentions reports whether an entry asks for one of the sets, which are ascending.
func mentions(r *bpf.Rule, sets []uint32) bool {
	in := func(s uint32) bool {
		_, is := slices.BinarySearch(sets, s)
		return is
	}
	return slices.ContainsFunc(r.In[:], in) || slices.ContainsFunc(r.NotIn[:], in)
}

// apart returns what is in one of two ascending lists only.
func apart(a, b []uint32) (all []uint32) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			all, a = append(all, a[0]), a[1:]
		default:
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}
