package labelindex

// users are the groups and parents that have a label, and the selections that are filed under it. Most labels have one
// user: a label of one pod, or of one namespace. So each group, parent and selection holds a users of itself alone, and
// the labels that nothing else uses point to it.
type users[V, U any] struct {
	who user // *Group, *parent, *Selection or *several
}

// user is a possible user of a label.
type user interface{ usesLabels() }

func (*Group[V, U]) usesLabels()     {}
func (*parent[V, U]) usesLabels()    {}
func (*Selection[V, U]) usesLabels() {}
func (*several[V, U]) usesLabels()   {}

// several is more than one user, now or earlier.
type several[V, U any] struct {
	itself     users[V, U]
	groups     groupList[V, U]    // that have the label as their own
	parents    []*parent[V, U]    // that have it
	selections []*Selection[V, U] // filed under it: the label must have this value, or one of some
}

// severally returns the users of a label that gets one more.
func (l *label[V, U]) severally() *several[V, U] {
	s, ok := l.users.who.(*several[V, U])
	if ok {
		return s
	}
	s = &several[V, U]{}
	s.itself.who = s
	switch only := l.users.who.(type) {
	case *Group[V, U]:
		s.groups.add(only)
	case *parent[V, U]:
		s.parents = append(s.parents, only)
	case *Selection[V, U]:
		s.selections = append(s.selections, only)
	}
	l.users = &s.itself
	return s
}

// isUsed reports whether anything uses the label.
func (l *label[V, U]) isUsed() bool {
	if l.users == nil {
		return false
	}
	s, ok := l.users.who.(*several[V, U])
	return !ok || s.groups.len()+len(s.parents)+len(s.selections) > 0
}

// addGroup notes that a group has the label as its own, and dropGroup that it is gone.
func (l *label[V, U]) addGroup(g *Group[V, U]) {
	if l.users == nil {
		l.users = &g.alone
		return
	}
	l.severally().groups.add(g)
}

func (l *label[V, U]) dropGroup(g *Group[V, U]) {
	if l.users == &g.alone {
		l.users = nil
		return
	}
	l.severally().groups.left()
}

// addParent notes that a parent has the label, and dropParent that it does not any more.
func (l *label[V, U]) addParent(p *parent[V, U]) {
	if l.users == nil {
		l.users = &p.alone
		return
	}
	s := l.severally()
	s.parents = append(s.parents, p)
}

func (l *label[V, U]) dropParent(p *parent[V, U]) {
	if l.users == &p.alone {
		l.users = nil
		return
	}
	s := l.severally()
	s.parents = without(s.parents, p)
}

// addSelection notes that a selection is filed under the label, and dropSelection that it is not any more.
func (l *label[V, U]) addSelection(sel *Selection[V, U]) {
	if l.users == nil {
		l.users = &sel.alone
		return
	}
	s := l.severally()
	s.selections = append(s.selections, sel)
}

func (l *label[V, U]) dropSelection(sel *Selection[V, U]) {
	if l.users == &sel.alone {
		l.users = nil
		return
	}
	s := l.severally()
	s.selections = without(s.selections, sel)
}

// candidates yields the selections that are filed under the label or its name, and reports whether all were wanted.
func (l *label[V, U]) candidates(yield func(*Selection[V, U]) bool) (all bool) {
	for s := range l.of.selections {
		if !yield(s) {
			return false
		}
	}
	for s := range l.selections {
		if !yield(s) {
			return false
		}
	}
	return true
}

// isFiled reports whether there are candidates.
func (l *label[V, U]) isFiled() bool {
	return !l.candidates(func(*Selection[V, U]) bool { return false })
}

// selections yields those filed under the label.
func (l *label[V, U]) selections(yield func(*Selection[V, U]) bool) {
	if l.users == nil {
		return
	}
	switch who := l.users.who.(type) {
	case *Selection[V, U]:
		yield(who)
	case *several[V, U]:
		for _, s := range who.selections {
			if !yield(s) {
				return
			}
		}
	}
}

// all yields the groups that have the label, themselves or by a parent; those of several parents more than once.
func (l *label[V, U]) all(yield func(*Group[V, U]) bool) {
	if l.users == nil {
		return
	}
	var parents []*parent[V, U]
	switch who := l.users.who.(type) {
	case *Group[V, U]:
		if who.items != nil {
			yield(who)
		}
	case *parent[V, U]:
		parents = []*parent[V, U]{who}
	case *several[V, U]:
		for g := range who.groups.live() {
			if !yield(g) {
				return
			}
		}
		parents = who.parents
	}
	for _, p := range parents {
		for g := range p.groups.live() {
			if !yield(g) {
				return
			}
		}
	}
}

// count is the number of groups that all yields, and of the selections filed under the label.
func (l *label[V, U]) count() (groups, selections int) {
	if l.users == nil {
		return 0, 0
	}
	switch who := l.users.who.(type) {
	case *Group[V, U]:
		return 1, 0
	case *parent[V, U]:
		return who.groups.len(), 0
	case *Selection[V, U]:
		return 0, 1
	case *several[V, U]:
		groups, selections = who.groups.len(), len(who.selections)
		for _, p := range who.parents {
			groups += p.groups.len()
		}
	}
	return groups, selections
}
