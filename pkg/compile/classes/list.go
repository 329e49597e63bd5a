package classes

import (
	"cmp"
	"iter"
	"slices"
)

// pageBits is the number of low bits of an id by which the classes of one page of a List differ.
const pageBits = 6

func pageOf(id uint32) uint32 { return id >> pageBits }

// List is all classes that there are at some time, by ascending id; None4 and None6 are always among them. It never changes. A later one of the
// same Classes shares with it what has not changed in between, so that making it costs as much with many classes as with few. The zero List has no classes, not even None4 and None6.
type List struct {
	pages []Page // by pageOf
	len   int
}

// Page is a part of a List: the classes whose ids differ in their low bits only, ascending. Its classes and their sets must not be changed.
type Page struct {
	Classes []Class
	// First and Last are the lowest and the highest number of a set that one of the classes is in; 0: none is in any.
	First, Last uint32
}

func newPage(all []Class) Page {
	p := Page{Classes: all}
	for i := range all {
		sets := all[i].Sets
		if len(sets) == 0 {
			continue
		}
		if p.First == 0 || sets[0] < p.First {
			p.First = sets[0]
		}
		p.Last = max(p.Last, sets[len(sets)-1])
	}
	return p
}

// is reports whether two pages are the same memory, so that they have the same classes.
func (p Page) is(o Page) bool {
	return len(p.Classes) > 0 && len(p.Classes) == len(o.Classes) && &p.Classes[0] == &o.Classes[0]
}

// ListOf returns a List of these classes, in any order, and of those that have no sets. The caller keeps the slice.
func ListOf(some []Class) List {
	all := append(slices.Clone(some), Class{ID: None4, Family: 4}, Class{ID: None6, Family: 6})
	slices.SortStableFunc(all, func(a, b Class) int { return cmp.Compare(a.ID, b.ID) })
	all = slices.CompactFunc(all, func(a, b Class) bool { return a.ID == b.ID })
	pages := make([]Page, pageOf(all[len(all)-1].ID)+1)
	for rest := all; len(rest) > 0; {
		at, n := pageOf(rest[0].ID), 1
		for n < len(rest) && pageOf(rest[n].ID) == at {
			n++
		}
		pages[at], rest = newPage(rest[:n:n]), rest[n:]
	}
	return List{pages, len(all)}
}

// Pages yields the classes by ascending id, page by page. Some pages have none.
func (l List) Pages() iter.Seq[*Page] {
	return func(yield func(*Page) bool) {
		for i := range l.pages {
			if !yield(&l.pages[i]) {
				return
			}
		}
	}
}

// All yields the classes by ascending id. Their sets must not be changed.
func (l List) All() iter.Seq[Class] {
	return func(yield func(Class) bool) {
		for _, page := range l.pages {
			for _, c := range page.Classes {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Since yields the classes that have come or changed since a former List of the same Classes, and some that have not, by ascending id.
func (l List) Since(former List) iter.Seq[Class] {
	return func(yield func(Class) bool) {
		for at, page := range l.pages {
			if at < len(former.pages) && page.is(former.pages[at]) {
				continue
			}
			for _, c := range page.Classes {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// Len is the number of classes.
func (l List) Len() int { return l.len }

// Last is the highest id; 0 if there are no classes.
func (l List) Last() uint32 {
	for _, page := range slices.Backward(l.pages) {
		if n := len(page.Classes); n > 0 {
			return page.Classes[n-1].ID
		}
	}
	return 0
}

// But returns the List without the classes of these ids, in any order. The caller keeps the slice.
func (l List) But(ids []uint32) List {
	l.pages = slices.Clone(l.pages)
	for ids = slices.Sorted(slices.Values(ids)); len(ids) > 0; {
		at, n := pageOf(ids[0]), 1
		for n < len(ids) && pageOf(ids[n]) == at {
			n++
		}
		left := slices.DeleteFunc(slices.Clone(l.pages[at].Classes), func(c Class) bool {
			_, out := slices.BinarySearch(ids[:n], c.ID)
			return out
		})
		l.len += len(left) - len(l.pages[at].Classes)
		l.pages[at], ids = newPage(left), ids[n:]
	}
	return l
}
