package calc

import (
	"cmp"
	"slices"
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
	out   map[string]bool // objects that do not count
}

func newAllotment(most int) allotment { return allotment{most: most, by: map[string]*allotted{}} }

// isOut reports whether an object is left out.
func (l *allotment) isOut(namespace, name string) bool {
	a := l.by[namespace]
	return a != nil && a.out[name]
}

// set notes how much an object contributes, 0 if it is gone, and returns the others of its namespace that are left out from
// now on, or are so no more.
func (l *allotment) set(namespace, name string, size int) (changed []string) {
	l.note(namespace, name, size)
	return slices.DeleteFunc(l.decide(namespace), func(other string) bool { return other == name })
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

// decide works out which objects of a namespace count, and returns those that are left out from now on, or are so no more.
func (l *allotment) decide(namespace string) (changed []string) {
	a := l.by[namespace]
	if a == nil {
		return nil
	}
	if a.sum <= l.most && len(a.out) == 0 {
		return nil
	}
	was := a.out
	a.out = a.past(l.most)
	for other := range a.sizes {
		if was[other] != a.out[other] {
			changed = append(changed, other)
		}
	}
	return changed
}

// past are the objects for which there is no room after the smaller ones.
func (a *allotted) past(most int) map[string]bool {
	names := make([]string, 0, len(a.sizes))
	for name := range a.sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(a.sizes[x], a.sizes[y]), cmp.Compare(x, y)) })
	out, sum := map[string]bool{}, 0
	for _, name := range names {
		if sum += a.sizes[name]; sum > most {
			out[name] = true
		}
	}
	return out
}
