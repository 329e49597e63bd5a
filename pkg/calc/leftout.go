package calc

// Network sets that are left out of definitions are counted in when there is room. There may be very many pairs of both, and none need be looked
// at again before there is more room. So the network sets alone are in a list, and a flush looks at the first ones.

// mostTried is about how many definitions and prefixes are looked at in one flush, to count in what was left out.
const mostTried = 1 << 14

// admit counts network sets in that were left out of definitions, where there is room now. Each has its turn, the one first for which that is the
// longest ago. The rest is for later flushes.
func (x *selectedSets) admit() {
	f := x.found
	if f.untried == 0 {
		return
	}
	for tries := f.tries; tries > 0 && f.untried > 0 && f.left.Len() > 0; f.untried-- {
		tries -= x.retry(f.left.Front().Value.(*item))
	}
	if f.left.Len() == 0 {
		f.untried = 0
	}
}

// retry counts a network set in where it is left out and there is room now, and returns what that took.
func (x *selectedSets) retry(it *item) (tries int) {
	f, n := x.found, it.Value.nets()
	namespace, _ := namespaceOf(it.Group())
	f.left.MoveToBack(it.Value.extra.left)
	if !f.room.hasFor(it) || !f.mayBeRoom(namespace, n) {
		return 1
	}
	still := false
	for s := range it.Group().Selections() {
		tries++
		switch d := s.Use.addrs; {
		case d == nil || d.has(namespace, it):
		case f.room.hasFor(it) && f.isRoom(d, namespace, n):
			x.addToSets(d, it, -1)
			x.addToSets(d, it, 1)
			tries += n
		default:
			still = true
		}
	}
	if !still {
		f.forget(it)
	}
	return tries + 1
}

// mayBeRoom reports whether isRoom may be true of a definition that network sets of a namespace are left out of.
func (f *netsFound) mayBeRoom(namespace string, n int) bool {
	for account := range f.lacking[namespace] {
		if f.isRoomOf(account, namespace, n) {
			return true
		}
	}
	return false
}

// omit notes that one network set more of a namespace is left out of a definition, or with -1 one fewer.
func (f *netsFound) omit(d *definition, namespace string, of *taken, delta int) {
	was := of.left
	if of.left += delta; (was == 0) == (of.left == 0) {
		return
	}
	for account := range d.accounts {
		f.lack(account, namespace, delta)
	}
	if f.short[d] = struct{}{}; of.left > 0 {
		return
	}
	if of.crowded = false; !d.isShort() {
		delete(f.short, d)
	}
}

// forget is for an item that is left out no more, or that is gone.
func (f *netsFound) forget(it *item) {
	if at := it.Value.extra.left; at != nil {
		f.left.Remove(at)
		it.Value.extra.left = nil
	}
}

// lack notes that an account pays for one more definition that network sets of a namespace are left out of, or with -1 for one fewer.
func (f *netsFound) lack(account, namespace string, delta int) {
	of := f.lacking[namespace]
	if of == nil {
		of = map[string]int{}
		f.lacking[namespace] = of
	}
	if of[account] += delta; of[account] == 0 {
		delete(of, account)
	}
	if len(of) == 0 {
		delete(f.lacking, namespace)
	}
}
