package calc

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// identity is all of an item that selectors and port names can see.
type identity struct {
	labels   map[string]string
	profiles []string
	ports    []model.NamedPort
}

// group is all items of an index with one identity. Selectors are matched against groups, so the pods of a Deployment
// cost one match and share one copy of their labels.
type group struct {
	labels  []*labelValue     // its own, by name
	parents []*parent         // the profiles, in order
	ports   []model.NamedPort // shared with whoever named them first
	items   *item             // the first; nil: the group is gone
	matches []matched
	next    *group // of the same hash
}

// is reports whether the group has this identity.
func (g *group) is(id identity) bool {
	return equalLabels(g.labels, id.labels) && slices.Equal(g.ports, id.ports) &&
		slices.EqualFunc(g.parents, id.profiles, func(p *parent, name string) bool { return p.name == name })
}

// identity returns what the group stands for. The map and the list of profiles are the caller's.
func (g *group) identity() identity {
	id := identity{labels: labelMap(g.labels), ports: g.ports}
	for _, p := range g.parents {
		id.profiles = append(id.profiles, p.name)
	}
	return id
}

// all yields the group's items.
func (g *group) all() iter.Seq[*item] {
	return func(yield func(*item) bool) {
		for it := g.items; it != nil; it = it.next {
			if !yield(it) {
				return
			}
		}
	}
}

// Get implements selector.Labels: own labels win, then those of the first profile that has the label.
func (g *group) Get(name string) (string, bool) {
	if l := findLabel(g.labels, name); l != nil {
		return l.value, true
	}
	for _, p := range g.parents {
		if l := findLabel(p.labels, name); l != nil {
			return l.value, true
		}
	}
	return "", false
}

// effective yields every label the group has, with the value Get returns.
func (g *group) effective() iter.Seq[*labelValue] {
	return func(yield func(*labelValue) bool) {
		for _, l := range g.labels {
			if !yield(l) {
				return
			}
		}
		for i, p := range g.parents {
			for _, l := range p.labels {
				if !g.overrides(l.of.name, i) && !yield(l) {
					return
				}
			}
		}
	}
}

// overrides reports whether the label comes from the group itself or one of its first n parents.
func (g *group) overrides(name string, n int) bool {
	return findLabel(g.labels, name) != nil ||
		slices.ContainsFunc(g.parents[:n], func(p *parent) bool { return findLabel(p.labels, name) != nil })
}

// parent is a profile as a source of labels. It exists while it has labels or groups; in an index that has a source for
// the labels of profiles, while it has groups.
type parent struct {
	name   string
	labels []*labelValue // by name
	groups groupList
}

// labelIndex knows which selectors match which items. Its methods leave it consistent; they return what they changed
// and the caller carries on from there.
type labelIndex struct {
	seed    maphash.Seed
	groups  map[uint64]*group // by hash of their identity
	parents map[string]*parent
	source  *labelIndex // knows the labels of profiles that have no groups here; nil: this one does

	labels     map[string]*labelName
	selections selectionIndex
	round      uint64 // of rematch
	most       int    // groups, see shrink
}

func newLabelIndex() *labelIndex {
	return &labelIndex{
		seed:       maphash.MakeSeed(),
		groups:     map[uint64]*group{},
		parents:    map[string]*parent{},
		labels:     map[string]*labelName{},
		selections: newSelectionIndex(),
	}
}

func (x *labelIndex) shrink() { shrink(&x.groups, &x.most) }

// join puts the item into the group with that identity. If it is a new group its matches are already known.
func (x *labelIndex) join(it *item, id identity) {
	hash := x.hash(id)
	g := x.groups[hash]
	for g != nil && !g.is(id) {
		g = g.next
	}
	if g == nil {
		g = x.newGroup(id, hash)
	}
	it.group, it.next = g, g.items
	if it.next != nil {
		it.next.prev = it
	}
	g.items = it
}

// leave takes the item out of its group. A group that was left by its last item is out of the index, but still knows
// its matches.
func (x *labelIndex) leave(it *item) {
	g := it.group
	if it.next != nil {
		it.next.prev = it.prev
	}
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		g.items = it.next
	}
	it.next, it.prev = nil, nil
	if g.items == nil {
		x.dropGroup(g)
	}
}

func (x *labelIndex) newGroup(id identity, hash uint64) *group {
	g := &group{ports: id.ports, next: x.groups[hash], labels: x.intern(id.labels)}
	x.groups[hash] = g
	for _, l := range g.labels {
		l.groups.add(g)
	}
	if len(id.profiles) > 0 {
		g.parents = make([]*parent, 0, len(id.profiles))
	}
	for _, name := range id.profiles {
		p := x.parent(name)
		p.groups.add(g)
		g.parents = append(g.parents, p)
	}
	x.rematch(g)
	return g
}

func (x *labelIndex) dropGroup(g *group) {
	x.unchain(g)
	for _, l := range g.labels {
		l.groups.left()
		x.dropLabelIfUnused(l)
	}
	for _, p := range g.parents {
		p.groups.left()
		x.dropIfUnused(p)
	}
	for _, m := range g.matches {
		m.selection.forget(m.at)
	}
}

// unchain takes the group out of those of its hash.
func (x *labelIndex) unchain(g *group) {
	hash := x.hashGroup(g)
	if x.groups[hash] != g {
		before := x.groups[hash]
		for before.next != g {
			before = before.next
		}
		before.next = g.next
		return
	}
	if x.groups[hash] = g.next; g.next == nil {
		delete(x.groups, hash)
	}
}

// all yields every group.
func (x *labelIndex) all() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, g := range x.groups {
			for ; g != nil; g = g.next {
				if !yield(g) {
					return
				}
			}
		}
	}
}

// parent returns the profile of that name, which it makes if there is none.
func (x *labelIndex) parent(name string) *parent {
	p := x.parents[name]
	if p == nil {
		p = &parent{name: name}
		x.parents[name] = p
		if x.source != nil && x.source.parents[name] != nil {
			x.relabel(p, labelMap(x.source.parents[name].labels))
		}
	}
	return p
}

func (x *labelIndex) dropIfUnused(p *parent) {
	if p.groups.len() > 0 || len(p.labels) > 0 && x.source == nil {
		return
	}
	x.relabel(p, nil)
	delete(x.parents, p.name)
}

// setParent gives a profile its labels and returns the matches that started or stopped.
func (x *labelIndex) setParent(name string, labels map[string]string) []match {
	if x.source != nil && x.parents[name] == nil {
		return nil
	}
	p := x.parent(name)
	if equalLabels(p.labels, labels) {
		x.dropIfUnused(p)
		return nil
	}
	x.relabel(p, labels)
	var changed []match
	for g := range p.groups.live() {
		changed = append(changed, x.rematch(g)...)
	}
	x.dropIfUnused(p)
	return changed
}

// relabel replaces the labels of a profile. What matches its groups is for the caller to see to.
func (x *labelIndex) relabel(p *parent, labels map[string]string) {
	was := p.labels
	p.labels = x.intern(labels)
	for _, l := range p.labels {
		l.use().parents = append(l.use().parents, p)
	}
	for _, l := range was {
		l.uses.parents = without(l.uses.parents, p)
		x.dropLabelIfUnused(l)
	}
}

// hash does not depend on the order of the labels.
func (x *labelIndex) hash(id identity) uint64 {
	var sum uint64
	for name, value := range id.labels {
		sum += x.hashLabel(name, value)
	}
	for i, name := range id.profiles {
		sum += x.hashProfile(i, name)
	}
	return sum + x.hashPorts(id.ports)
}

// hashGroup is the hash of the group's identity.
func (x *labelIndex) hashGroup(g *group) uint64 {
	var sum uint64
	for _, l := range g.labels {
		sum += x.hashLabel(l.of.name, l.value)
	}
	for i, p := range g.parents {
		sum += x.hashProfile(i, p.name)
	}
	return sum + x.hashPorts(g.ports)
}

func (x *labelIndex) hashLabel(name, value string) uint64 {
	return maphash.Comparable(x.seed, [2]string{name, value})
}

func (x *labelIndex) hashProfile(i int, name string) uint64 {
	return maphash.String(x.seed, name) * uint64(i+2)
}

func (x *labelIndex) hashPorts(ports []model.NamedPort) uint64 {
	var sum uint64
	for _, port := range ports {
		sum = sum*31 + maphash.Comparable(x.seed, port)
	}
	return sum
}

// intern returns the labels by name; the caller must make use of them, or drop them.
func (x *labelIndex) intern(labels map[string]string) []*labelValue {
	if len(labels) == 0 {
		return nil
	}
	list := make([]*labelValue, 0, len(labels))
	for name, value := range labels {
		list = append(list, x.label(name, value))
	}
	slices.SortFunc(list, func(a, b *labelValue) int { return strings.Compare(a.of.name, b.of.name) })
	return list
}
