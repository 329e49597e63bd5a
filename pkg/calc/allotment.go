package calc

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Limits on what the objects of one namespace add to the address maps of every node, whichever policies refer to them. Objects past it,
// the larger ones first, are left out and reported.
const (
	// MaxExternal is the number of external and load-balancer addresses of a namespace's Services.
	MaxExternal = 1 << 12
	// MaxNetworkSetNets is the number of prefixes in a namespace's network sets.
	MaxNetworkSetNets = 1 << 17
)

// allotment knows which objects of one kind count. The answer depends on the present objects alone, never on the order
// in which they came.
type allotment struct {
	most int // of one namespace
	by   map[string]*allotted
}

// allotted are the objects of one namespace that contribute anything.
type allotted struct {
	sizes map[string]int // by name
	sum   int
	first portion // the first one that does not count, as of the last decision; zero: all count
}

// portion is what an object contributes. Smaller ones come first, and of equal ones the one with the lower name.
type portion struct {
	size int
	name string
}

func (p portion) compare(o portion) int {
	return cmp.Or(cmp.Compare(p.size, o.size), strings.Compare(p.name, o.name))
}

// isPast reports whether an object does not count if first is the first that does not.
func (p portion) isPast(first portion) bool { return first != portion{} && p.compare(first) >= 0 }

func newAllotment(most int) allotment { return allotment{most: most, by: map[string]*allotted{}} }

// isOut reports whether an object is left out. It must have been so large when that was decided.
func (l *allotment) isOut(namespace, name string) bool {
	a := l.by[namespace]
	return a != nil && a.isOut(name)
}

func (a *allotted) isOut(name string) bool {
	size, known := a.sizes[name]
	return known && portion{size, name}.isPast(a.first)
}

// named is an object of a namespace.
type named struct{ namespace, name string }

// change notes how much some objects contribute, 0 if one is gone, and returns the others that are left out from now on, or are so no more.
func (l *allotment) change(sizes map[named]int) (others []named) {
	touched := map[string]struct{}{}
	for o, size := range sizes {
		l.note(o.namespace, o.name, size)
		touched[o.namespace] = struct{}{}
	}
	for namespace := range touched {
		for _, name := range l.decide(namespace) {
			other := named{namespace, name}
			if _, is := sizes[other]; !is {
				others = append(others, other)
			}
		}
	}
	return others
}

// note records how much an object contributes, 0 if it is gone. After all changes of a namespace, decide must follow.
func (l *allotment) note(namespace, name string, size int) {
	a := l.by[namespace]
	switch {
	case a == nil && size == 0:
		return
	case a == nil:
		a = &allotted{sizes: map[string]int{}}
		l.by[namespace] = a
	}
	a.sum += size - a.sizes[name]
	if a.sizes[name] = size; size == 0 {
		delete(a.sizes, name)
	}
	if len(a.sizes) == 0 {
		delete(l.by, namespace)
	}
}

// decide works out which objects of a namespace count, and returns those that are left out from now on, or are so no more. Objects that
// were noted since the last decision may be missing among them. It looks at every object of the namespace, of which there may be very
// many, so it is to be called once for all that have changed.
func (l *allotment) decide(namespace string) (changed []string) {
	a := l.by[namespace]
	if a == nil || a.sum <= l.most && a.first == (portion{}) {
		return nil
	}
	was := a.first
	a.first = a.firstPast(l.most)
	for name, size := range a.sizes {
		if p := (portion{size, name}); p.isPast(was) != p.isPast(a.first) {
			changed = append(changed, name)
		}
	}
	return changed
}

// firstPast is the first object for which there is no room after the smaller ones; zero: there is for all.
func (a *allotted) firstPast(most int) portion {
	if a.sum <= most {
		return portion{}
	}
	all := make([]portion, 0, len(a.sizes))
	for name, size := range a.sizes {
		all = append(all, portion{size, name})
	}
	slices.SortFunc(all, portion.compare)
	sum := 0
	for _, p := range all {
		if sum += p.size; sum > most {
			return p
		}
	}
	return portion{}
}

// leftOut yields the namespaces and names of the objects that do not count.
func (l *allotment) leftOut() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for namespace, a := range l.by {
			if a.first == (portion{}) {
				continue
			}
			for name := range a.sizes {
				if a.isOut(name) && !yield(namespace, name) {
					return
				}
			}
		}
	}
}
