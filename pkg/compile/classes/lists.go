package classes

import (
	"encoding/binary"
	"slices"
)

// listID names an ascending list of set numbers; equal lists have equal ids. 0 is the empty list.
type listID uint32

// setLists holds every list of set numbers once, so that an address costs four bytes however many sets it is in.
// Unused lists are dropped by sweep.
type setLists struct {
	lists [][]uint32
	index map[string]listID // by the numbers, four bytes each
	free  []listID
	live  int // lists left by the last sweep
	// Earlier results; emptied by sweep.
	unions map[[2]listID]listID
	edits  map[edit]listID
}

// edit is the step from a list to the one that has one set more or less.
type edit struct {
	from listID
	set  uint32
	add  bool
}

func newSetLists() *setLists {
	l := &setLists{lists: make([][]uint32, 1), index: map[string]listID{"": 0}}
	l.forget()
	return l
}

func (l *setLists) forget() {
	l.unions = map[[2]listID]listID{}
	l.edits = map[edit]listID{}
}

// sets returns the numbers of a list. The caller must not change them.
func (l *setLists) sets(id listID) []uint32 { return l.lists[id] }

// has reports whether the set is in the list.
func (l *setLists) has(id listID, set uint32) bool {
	_, ok := slices.BinarySearch(l.lists[id], set)
	return ok
}

// intern returns the id of an ascending list, which it keeps a copy of.
func (l *setLists) intern(sets []uint32) listID {
	text := make([]byte, 0, 4*len(sets))
	for _, s := range sets {
		text = binary.LittleEndian.AppendUint32(text, s)
	}
	if id, ok := l.index[string(text)]; ok {
		return id
	}
	id := listID(len(l.lists))
	if n := len(l.free); n > 0 {
		id, l.free = l.free[n-1], l.free[:n-1]
		l.lists[id] = slices.Clone(sets)
	} else {
		l.lists = append(l.lists, slices.Clone(sets))
	}
	l.index[string(text)] = id
	return id
}

// with returns the list plus the set.
func (l *setLists) with(id listID, set uint32) listID { return l.edit(edit{id, set, true}) }

// without returns the list minus the set.
func (l *setLists) without(id listID, set uint32) listID { return l.edit(edit{id, set, false}) }

func (l *setLists) edit(e edit) listID {
	if to, ok := l.edits[e]; ok {
		return to
	}
	at, found := slices.BinarySearch(l.lists[e.from], e.set)
	to := e.from
	switch {
	case e.add && !found:
		to = l.intern(slices.Insert(slices.Clone(l.lists[e.from]), at, e.set))
	case !e.add && found:
		to = l.intern(slices.Delete(slices.Clone(l.lists[e.from]), at, at+1))
	}
	l.edits[e] = to
	return to
}

// minus returns the list without any of the sets, which ascend.
func (l *setLists) minus(id listID, sets []uint32) listID {
	in := func(s uint32) bool {
		_, found := slices.BinarySearch(sets, s)
		return found
	}
	if !slices.ContainsFunc(l.lists[id], in) {
		return id
	}
	return l.intern(slices.DeleteFunc(slices.Clone(l.lists[id]), in))
}

// union returns the list of all sets in either list.
func (l *setLists) union(a, b listID) listID {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	if a > b {
		a, b = b, a
	}
	if to, ok := l.unions[[2]listID{a, b}]; ok {
		return to
	}
	all := slices.Concat(l.lists[a], l.lists[b])
	slices.Sort(all)
	to := l.intern(slices.Compact(all))
	l.unions[[2]listID{a, b}] = to
	return to
}

// full reports whether enough lists have been added since the last sweep to make another worth its time.
func (l *setLists) full() bool { return len(l.index) > 2*l.live+1024 }

// sweep drops every list that used does not say is in use. Ids of dropped lists are given to others later.
func (l *setLists) sweep(used func(listID) bool) {
	for text, id := range l.index {
		if id != 0 && !used(id) {
			delete(l.index, text)
			l.lists[id] = nil
			l.free = append(l.free, id)
		}
	}
	slices.Sort(l.free) // map order must not decide who gets which id
	l.live = len(l.index)
	l.forget()
}
