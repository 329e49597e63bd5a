package classes

import (
	"slices"

	"github.com/margay-project/margay/pkg/compile/ids"
)

// registry numbers the classes, and counts the entries of each.
type registry struct {
	lists  *setLists
	byID   []classState
	top    uint32               // no class is above
	all    List                 // see All; but for stale pages
	stale  map[uint32]struct{}  // pages of all that are to be made
	byList [2]map[listID]uint32 // the sets of a class -> its id
	ids    ids.Pool
	held   map[uint32]bool // ids not to be used again yet

	created []uint32 // since the last call of Created
	idle    []uint32 // may have no entries any more
	coming  []uint32 // unknown classes of which it is known what sets their addresses are to be in
	gone    []uint32 // since the last call of Reuse; until then, and while they are held, Differ knows their sets
}

type classState struct {
	family  int // index in trees
	list    listID
	entries int
	used    bool     // the id is taken
	unknown bool     // found in a kernel that does not have its sets: see adoptEntry
	next    nextSets // of an unknown one
}

func newRegistry(lists *setLists) registry {
	return registry{
		lists:  lists,
		stale:  map[uint32]struct{}{0: {}},
		byID:   []classState{{family: 0, used: true}, {family: 1, used: true}},
		byList: [2]map[listID]uint32{{0: None4}, {0: None6}},
		ids:    ids.NewPool(2, 1<<31),
	}
}

// Len returns how many sets of sets have a class, the two without sets included.
func (r *registry) Len() int { return len(r.byList[0]) + len(r.byList[1]) }

// Class returns a class by its id; not ok if there is none, or its sets are unknown. In the first plan an unknown class has the sets that all of
// its addresses are to be in, if these are the same.
func (r *registry) Class(id uint32) (Class, bool) {
	if id >= uint32(len(r.byID)) || !r.byID[id].used || r.byID[id].unknown && r.byID[id].next != nextIs {
		return Class{}, false
	}
	s := r.byID[id]
	return Class{ID: id, Family: uint8(4 + 2*s.family), Sets: r.lists.sets(s.list)}, true
}

// All returns every class whose sets are known.
func (r *registry) All() List {
	if len(r.stale) == 0 {
		return r.all
	}
	pages := make([]Page, pageOf(uint32(len(r.byID)-1))+1)
	copy(pages, r.all.pages)
	for at := range r.stale {
		r.all.len -= len(pages[at].Classes)
		pages[at] = newPage(r.page(at))
		r.all.len += len(pages[at].Classes)
	}
	r.all.pages = pages
	clear(r.stale)
	return r.all
}

// page makes one page of All.
func (r *registry) page(at uint32) []Class {
	var page [1 << pageBits]Class
	n := 0
	for id := at << pageBits; id < (at+1)<<pageBits; id++ {
		if class, ok := r.Class(id); ok {
			page[n] = class
			n++
		}
	}
	return slices.Clone(page[:n])
}

// change notes that a class came or went, or that its sets have come to be known or are not any more.
func (r *registry) change(id uint32) { r.stale[pageOf(id)] = struct{}{} }

// Highest is the highest id of a class.
func (r *registry) Highest() uint32 {
	for r.top > None6 && !r.byID[r.top].used {
		r.top--
	}
	return r.top
}

// Differ reports whether the classes differ in their family or in one of the sets. One that was dropped counts as it was, until Reuse, and
// while it is held. An entry of the kernel that somebody has damaged may have a number that no class ever had: it is unlike all others, as
// one is whose sets are unknown.
func (r *registry) Differ(a, b uint32, sets []uint32) bool {
	if a == b {
		return false
	}
	if n := uint32(len(r.byID)); a >= n || b >= n {
		return true
	}
	x, y := r.byID[a], r.byID[b]
	if x.unknown || y.unknown {
		return true
	}
	return x.family != y.family || slices.ContainsFunc(sets, func(s uint32) bool {
		return r.lists.has(x.list, s) != r.lists.has(y.list, s)
	})
}

// classOf returns the class of these sets, a new one if there is none.
func (r *registry) classOf(f int, l listID) uint32 {
	if id, ok := r.byList[f][l]; ok {
		return id
	}
	id := r.ids.Acquire()
	r.define(id, f, l)
	r.created = append(r.created, id)
	return id
}

func (r *registry) define(id uint32, f int, l listID) {
	r.place(id, classState{family: f, list: l, used: true})
	r.byList[f][l] = id
}

func (r *registry) place(id uint32, s classState) {
	for uint32(len(r.byID)) <= id {
		r.byID = append(r.byID, classState{})
	}
	r.byID[id] = s
	r.top = max(r.top, id)
	r.change(id)
}

// adopt numbers a class found in the kernel. Without entries it is not found by its sets.
func (r *registry) adopt(class Class, f int, entries bool) {
	list := r.lists.intern(class.Sets)
	if _, twin := r.byList[f][list]; twin || !entries { // a twin's entries go to the other one
		r.place(class.ID, classState{family: f, list: list, used: true})
	} else {
		r.define(class.ID, f, list)
	}
	r.idle = append(r.idle, class.ID)
}

// claim keeps ids found in the kernel from being used for new classes.
func (r *registry) claim(ids []uint32) { r.ids.Claim(ids) }

// Unknown reports whether a class was found in a kernel that does not have its sets. Until none of its entries is left, which the second
// plan brings about, new tables have no row for it, so they deny its addresses, but for those rows that foresee makes possible.
func (r *registry) Unknown(id uint32) bool { return id < uint32(len(r.byID)) && r.byID[id].unknown }

// adoptEntry notes an entry found in the kernel. Its class may be unknown: then it is to lose the entry.
func (r *registry) adoptEntry(id uint32, f int) {
	if id >= uint32(len(r.byID)) || !r.byID[id].used {
		r.place(id, classState{family: f, used: true, unknown: true})
		r.idle = append(r.idle, id)
	}
	r.enter(id)
}

// setsOf returns the sets of a class, ascending.
func (r *registry) setsOf(id uint32) []uint32 { return r.lists.sets(r.byID[id].list) }

// markLists marks the lists that classes have.
func (r *registry) markLists(used []bool) {
	for _, s := range r.byID {
		used[s.list] = true
	}
}

// enter notes one more entry of a class.
func (r *registry) enter(id uint32) { r.byID[id].entries++ }

// exit notes one entry less.
func (r *registry) exit(id uint32) {
	r.byID[id].entries--
	r.idle = append(r.idle, id)
}

// Created returns the classes made since the last call, by ascending id.
func (r *registry) Created() []Class {
	slices.Sort(r.created)
	var all []Class
	for _, id := range r.created {
		class, _ := r.Class(id)
		all = append(all, class)
	}
	r.created = nil
	return all
}

// Drop removes the classes that no entry has any more and returns their ids, ascending. Reuse makes them available.
func (r *registry) Drop() []uint32 {
	slices.Sort(r.idle)
	var gone []uint32
	for _, id := range slices.Compact(r.idle) {
		s := r.byID[id]
		if id < 2 || !s.used || s.entries > 0 {
			continue
		}
		if r.byList[s.family][s.list] == id {
			delete(r.byList[s.family], s.list)
		}
		r.byID[id].used = false
		r.change(id)
		r.ids.Release(id)
		gone = append(gone, id)
	}
	r.idle = nil
	r.gone = append(r.gone, gone...)
	return gone
}

// Reuse makes the ids of dropped classes available for new ones, but for those that are held.
func (r *registry) Reuse() {
	for _, id := range r.coming { // this plan moves their addresses; some of the sets may have gone, and others may get their numbers
		r.neverForesee(id)
	}
	r.coming = nil
	held := r.gone[:0]
	for _, id := range r.gone {
		switch {
		case r.held[id]: // an entry in the kernel still has it
			held = append(held, id)
		case !r.byID[id].used:
			r.byID[id] = classState{}
		}
	}
	r.gone = held
	r.ids.ReuseBut(r.held)
}

// Hold keeps the ids of classes from being used again, until the next call. Only Reuse reads the map, which is the caller's.
func (r *registry) Hold(classes map[uint32]bool) { r.held = classes }
