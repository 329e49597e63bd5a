package calc

// A policy is charged what its selectors find when it comes. They may find much more later: one write to a ServiceAccount changes what all of
// its pods inherit, and a pod may be found by 8,192 selectors. So a namespace that has much more found than it may have when its policies come
// loses all of them. With the next flush they are looked at as if they came: those that there is room for apply, and the others are refused.
// The kernel keeps the members that the sets of these had.

// reliefEvery is after how many new members of sets it is looked whether a namespace has too many found. That takes some 1 ms.
const reliefEvery = 1 << 17

// relief has what is to be done in the present flush and the next for those whose selectors have come to find too much.
type relief struct {
	every   int                   // reliefEvery
	refused map[*ruleset]struct{} // lost their definitions since the last flush
	later   map[*ruleset]struct{} // are built again with the next flush: those, and others that need a definition that is about to go
}

func newRelief() relief {
	return relief{every: reliefEvery, refused: map[*ruleset]struct{}{}, later: map[*ruleset]struct{}{}}
}

// mostGrown is how much may be found for an account in the end: half as much again as when its policies come.
func (s *spending) mostGrown(account string) int { return s.mostOf(account) / 2 * 3 }

// found is what a definition has found, but for one of a Service, which is bounded by itself. It is not more than the weight of what it would be
// charged for: otherwise policies would be refused again right after they were admitted.
func (d *definition) found() (n int) {
	for _, s := range d.sets {
		if s.listed == nil {
			n += s.members.found()
		}
	}
	return n
}

// cost is what a definition costs somebody who comes to use it. It may have been made when it found little.
func (d *definition) cost() int { return max(d.weight, d.found()) }

// relieve refuses the policies of those whose selectors have come to find too much, if it is time to look.
func (x *setIndex) relieve() {
	if x.joined < x.relief.every {
		return
	}
	x.joined = 0
	sums := map[string]int{}
	for _, d := range x.definitions {
		n := d.found()
		for account := range d.accounts {
			sums[account] += n
		}
	}
	for account, n := range sums {
		if !isGlobal(account) && n > x.spending.mostGrown(account) {
			x.disown(account)
		}
	}
}

// disown takes their definitions from the rules of an account. What none other uses finds nothing from then on, and goes with this flush.
func (x *setIndex) disown(account string) {
	for _, d := range x.definitions {
		for rs := range d.users {
			if rs.account() == account {
				x.relief.refused[rs] = struct{}{}
			}
		}
	}
	for rs := range x.spending.refused { // in their turn, and not before those that were in force
		if rs.account() == account {
			x.relief.refused[rs] = struct{}{}
		}
	}
	for rs := range x.relief.refused {
		x.use(rs, nil)
	}
	for d := range x.unused {
		if len(d.users) > 0 || d.closed {
			continue
		}
		d.closed = true
		x.selected.undefine(d)
		d.selection = nil
		delete(x.repopulated, d)
		for _, s := range d.sets {
			s.forget() // policies in the kernel keep the members of the last flush
		}
	}
}

// rebuilt returns the rules that are to be built because of that, besides those that have changed.
func (r *relief) rebuilt() map[*ruleset]struct{} {
	all := r.later
	r.later = map[*ruleset]struct{}{}
	for rs := range r.refused {
		all[rs] = struct{}{}
	}
	return all
}

// forget is for rules that are gone.
func (r *relief) forget(rs *ruleset) {
	delete(r.refused, rs)
	delete(r.later, rs)
}
