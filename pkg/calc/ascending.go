package calc

import (
	"iter"
	"net/netip"
	"slices"
)

// unionOf returns the prefixes of all of the contributions, ascending. The list is shared.
func unionOf(list []*contribution) []netip.Prefix {
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0].prefixes
	}
	n := 0
	for _, c := range list {
		n += len(c.prefixes)
	}
	all := make([]netip.Prefix, 0, n)
	for _, c := range list {
		all = append(all, c.prefixes...)
	}
	return ascending(all)
}

// ascending sorts a list and returns it with each prefix once.
func ascending(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, comparePrefixes)
	return slices.Compact(list)
}

// except returns the prefixes, which ascend, that none of the contributions has; the same list if these are all. The shorter list is
// looked up in the longer one: one prefix may stand against very many contributions, or very many prefixes against many short ones.
func except(prefixes []netip.Prefix, contributions []*contribution) []netip.Prefix {
	var found []bool // by index of prefixes; nil: none
	left := len(prefixes)
	for _, c := range contributions {
		for i := range common(prefixes, c.prefixes) {
			if found == nil {
				found = make([]bool, len(prefixes))
			}
			if !found[i] {
				found[i] = true
				left--
			}
		}
	}
	switch left {
	case len(prefixes):
		return prefixes
	case 0:
		return nil
	}
	rest := make([]netip.Prefix, 0, left)
	for at, p := range prefixes {
		if !found[at] {
			rest = append(rest, p)
		}
	}
	return rest
}

// common yields the indexes in a of the prefixes that both lists have, which ascend.
func common(a, b []netip.Prefix) iter.Seq[int] {
	return func(yield func(int) bool) {
		short, long := a, b
		if len(b) < len(a) {
			short, long = b, a
		}
		at := 0
		for i, p := range short {
			var found bool
			if at, found = seek(long, at, p); at == len(long) {
				return
			}
			if found {
				if len(b) < len(a) {
					i = at
				}
				if !yield(i) {
					return
				}
			}
		}
	}
}

// seek returns where a prefix is or would be in an ascending list, from an index on, and whether it is there. It is the quicker the
// nearer that is.
func seek(list []netip.Prefix, from int, p netip.Prefix) (at int, found bool) {
	step := 1
	for from+step < len(list) && comparePrefixes(list[from+step], p) < 0 {
		from += step
		step *= 2
	}
	at, found = slices.BinarySearchFunc(list[from:min(from+step+1, len(list))], p, comparePrefixes)
	return from + at, found
}
