package classes

import (
	"slices"
	"unsafe"
)

// listID names an ascending list of set numbers; equal lists have equal ids. 0 is the empty list.
type listID uint32

// setLists holds every list of set numbers once, so that an address costs four bytes however many sets it is in.
// Unused lists are found by mark and dropped by sweep.
type setLists struct {
	lists  [][]uint32
	index  map[string]listID // by the bytes of the numbers, which are those in lists
	block  []uint32          // see keep
	free   []listID
	live   int      // lists that the last mark has found in use
	unused []listID // that the last mark has found and sweep has not looked at yet, descending
	again  []bool   // by id: asked for again since then; shorter than lists
	made   int      // since the last sweep
	// Earlier results; emptied by mark.
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
	if id, ok := l.index[textOf(sets)]; ok {
		if int(id) < len(l.again) {
			l.again[id] = true
		}
		return id
	}
	l.made++
	kept := l.keep(sets)
	id := listID(len(l.lists))
	if n := len(l.free); n > 0 {
		id, l.free = l.free[n-1], l.free[:n-1]
		l.lists[id] = kept
	} else {
		l.lists = append(l.lists, kept)
	}
	if int(id) < len(l.again) {
		l.again[id] = true
	}
	l.index[textOf(kept)] = id
	return id
}

// blockNumbers is how many numbers of short lists share memory. There may be very many lists of one or two sets, and the garbage
// collector looks at each object; lists made one after the other are mostly of one policy, and go with it.
const blockNumbers = 32

// keep returns a copy of a list that never changes.
func (l *setLists) keep(sets []uint32) []uint32 {
	if len(sets) > blockNumbers/4 {
		return slices.Clone(sets)
	}
	if len(l.block)+len(sets) > cap(l.block) {
		l.block = make([]uint32, 0, blockNumbers)
	}
	n := len(l.block)
	l.block = append(l.block, sets...)
	return l.block[n:len(l.block):len(l.block)]
}

// textOf is what index has a list by: its bytes, which are not copied. So it is valid as long as the list does not change.
func textOf(sets []uint32) string {
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(sets))), len(sets)*int(unsafe.Sizeof(uint32(0))))
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

// full reports whether enough lists have been added since the last mark to make another worth its time.
func (l *setLists) full() bool { return len(l.unused) == 0 && len(l.index) > 2*l.live+1024 }

// mark has the next sweeps drop every list that is not in use by now, unless it is asked for until then. Nothing else may have a list
// that is not in use, since it would not ask for it.
func (l *setLists) mark(used []bool) {
	l.live, l.unused = 1, nil // the empty list stays
	for id := len(l.lists) - 1; id > 0; id-- {
		switch {
		case l.lists[id] == nil:
		case used[id]:
			l.live++
		default:
			l.unused = append(l.unused, listID(id))
		}
	}
	l.again = make([]bool, len(l.lists))
	l.forget()
}

// sweptAtOnce is how many lists one sweep looks at, which takes less than half a millisecond, unless twice as many were made since the last.
const sweptAtOnce = 1024

// sweep drops some of the unused lists. Their ids are given to others later.
func (l *setLists) sweep(most int) {
	for n := max(most, 2*l.made); n > 0 && len(l.unused) > 0; n-- {
		id := l.unused[len(l.unused)-1]
		l.unused = l.unused[:len(l.unused)-1]
		if l.again[id] {
			continue
		}
		delete(l.index, textOf(l.lists[id]))
		l.lists[id] = nil
		l.free = append(l.free, id)
	}
	if l.made = 0; len(l.unused) == 0 {
		l.unused, l.again = nil, nil
	}
}
