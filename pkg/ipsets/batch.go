package ipsets

// batch collects writes of a Set. The Set's record of the kernel changes with each add; end undoes the record of those that fail.
type batch struct {
	set    *Set
	writes []Change
	undo   []undo
	owners []int // for each write, the place of the change that it belongs to
}

// undo is the value that a Set held for the key before a write.
type undo struct {
	key packed
	old value
	had bool
}

// add appends the write of a change, unless the set holds that already.
func (b *batch) add(owner int, c Change) {
	s := b.set
	key := pack(c.Key)
	old, had := s.held[key]
	if c.Remove && !had || !c.Remove && had && old.same(c.Entry) {
		return
	}
	b.writes, b.owners, b.undo = append(b.writes, c), append(b.owners, owner), append(b.undo, undo{key, old, had})
	s.observed.add(key)
	if c.Remove {
		delete(s.held, key)
	} else {
		s.held[key] = value{mark: c.Mark, noMatch: c.NoMatch, seen: s.round}
	}
}

// end makes the writes. If all succeed, it returns count and then; otherwise the place of the change that failed, and its error.
func (b *batch) end(count int, then error) (made int, err error) {
	n, err := b.set.kernel.Write(b.set.spec, b.writes)
	if err != nil {
		for i := len(b.undo) - 1; i >= n; i-- {
			b.set.restore(b.undo[i])
		}
		b.set.unsure = b.set.unsure || !definite(err)
		count, then = b.owners[n], err
	}
	b.writes, b.owners, b.undo = b.writes[:0], b.owners[:0], b.undo[:0]
	return count, then
}

func (s *Set) restore(u undo) {
	if u.had {
		s.held[u.key] = u.old
	} else {
		delete(s.held, u.key)
	}
}
