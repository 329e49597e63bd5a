package validate

import "slices"

// distinct is a list without duplicates, in the order of the first ones. A tenant may write tens of thousands of entries
// into one object: a long list is not searched one by one.
type distinct[T comparable] struct {
	list []T
	seen map[T]bool // nil: the list is short
}

func (d *distinct[T]) add(v T) {
	const short = 16
	switch {
	case d.seen[v], d.seen == nil && slices.Contains(d.list, v):
		return
	case d.seen == nil && len(d.list) == short:
		d.seen = make(map[T]bool, 4*short)
		for _, was := range d.list {
			d.seen[was] = true
		}
	}
	if d.list = append(d.list, v); d.seen != nil {
		d.seen[v] = true
	}
}
