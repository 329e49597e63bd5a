package calc

import (
	"hash/maphash"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// item is something with labels and addresses: an endpoint or a network set. It is replaced, never changed, when its
// object changes.
type item struct {
	group *group
	pos   int // in group.items

	addrs []netip.Addr   // of an endpoint
	nets  []netip.Prefix // of a network set
	local *localEndpoint // of an item of the local index; nil in the cluster-wide one
}

// prefixes are the addresses the item contributes to the sets it is in.
func (it *item) prefixes() iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for _, a := range it.addrs {
			if p, ok := hostPrefix(a); ok && !yield(p) {
				return
			}
		}
		for _, n := range it.nets {
			if n.IsValid() && !yield(n.Masked()) {
				return
			}
		}
	}
}

// hostPrefix is the /32 or /128 of an address; not ok for the zero address.
func hostPrefix(a netip.Addr) (netip.Prefix, bool) {
	return netip.PrefixFrom(a, a.BitLen()), a.IsValid()
}

// identity is all of an item that selectors and port names can see.
type identity struct {
	labels   map[string]string
	profiles []string
	ports    []model.NamedPort
}

func (id identity) equal(o identity) bool {
	return maps.Equal(id.labels, o.labels) && slices.Equal(id.profiles, o.profiles) && slices.Equal(id.ports, o.ports)
}

// group is all items of an index with one identity. Selectors are matched against groups, so the pods of a Deployment
// cost one match and share one copy of their labels.
type group struct {
	identity
	hash    uint64
	parents []*parent // the profiles, in order
	items   []*item
	matches map[*selection]struct{}
}

// Get implements selector.Labels: own labels win, then those of the first profile that has the label.
func (g *group) Get(label string) (string, bool) {
	if v, ok := g.labels[label]; ok {
		return v, true
	}
	for _, p := range g.parents {
		if v, ok := p.labels[label]; ok {
			return v, true
		}
	}
	return "", false
}

// effective yields every label the group has, with the value Get returns.
func (g *group) effective() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for label, v := range g.labels {
			if !yield(label, v) {
				return
			}
		}
		for i, p := range g.parents {
			for label, v := range p.labels {
				if !g.overrides(label, i) && !yield(label, v) {
					return
				}
			}
		}
	}
}

// overrides reports whether the label comes from the group itself or one of its first n parents.
func (g *group) overrides(label string, n int) bool {
	if _, ok := g.labels[label]; ok {
		return true
	}
	return slices.ContainsFunc(g.parents[:n], func(p *parent) bool {
		_, ok := p.labels[label]
		return ok
	})
}

// parent is a profile as a source of labels. It exists while it has labels or groups.
type parent struct {
	name   string
	labels map[string]string
	groups map[*group]struct{}
}

// labelIndex knows which selectors match which items. Its methods leave it consistent; they return what they changed
// and the caller carries on from there.
type labelIndex struct {
	seed    maphash.Seed
	groups  map[uint64][]*group // by hash of their identity
	parents map[string]*parent

	byOwn       postings[*group]  // groups by own label
	byInherited postings[*parent] // parents by label
	selections  selectionIndex
	round       uint64 // of rematch
}

func newLabelIndex() *labelIndex {
	return &labelIndex{
		seed:        maphash.MakeSeed(),
		groups:      map[uint64][]*group{},
		parents:     map[string]*parent{},
		byOwn:       postings[*group]{},
		byInherited: postings[*parent]{},
		selections:  newSelectionIndex(),
	}
}

// join puts the item into the group with that identity. If it is a new group its matches are already known.
func (x *labelIndex) join(it *item, id identity) {
	hash := x.hash(id)
	var g *group
	if i := slices.IndexFunc(x.groups[hash], func(g *group) bool { return g.equal(id) }); i >= 0 {
		g = x.groups[hash][i]
	} else {
		g = x.newGroup(id, hash)
	}
	it.group, it.pos = g, len(g.items)
	g.items = append(g.items, it)
}

// leave takes the item out of its group. A group that was left by its last item is out of the index, but still knows
// its matches.
func (x *labelIndex) leave(it *item) {
	g := it.group
	last := len(g.items) - 1
	g.items[it.pos] = g.items[last]
	g.items[it.pos].pos = it.pos
	g.items[last] = nil
	g.items = g.items[:last]
	if last == 0 {
		x.dropGroup(g)
	}
}

func (x *labelIndex) newGroup(id identity, hash uint64) *group {
	g := &group{identity: id, hash: hash, matches: map[*selection]struct{}{}}
	x.groups[hash] = append(x.groups[hash], g)
	for label, v := range g.labels {
		x.byOwn.add(label, v, g)
	}
	for _, name := range g.profiles {
		p := x.parent(name)
		p.groups[g] = struct{}{}
		g.parents = append(g.parents, p)
	}
	x.rematch(g)
	return g
}

func (x *labelIndex) dropGroup(g *group) {
	same := slices.DeleteFunc(x.groups[g.hash], func(o *group) bool { return o == g })
	if x.groups[g.hash] = same; len(same) == 0 {
		delete(x.groups, g.hash)
	}
	for label, v := range g.labels {
		x.byOwn.remove(label, v, g)
	}
	for _, p := range g.parents {
		delete(p.groups, g)
		x.dropIfUnused(p)
	}
	for s := range g.matches {
		delete(s.groups, g)
	}
}

// all yields every group.
func (x *labelIndex) all() iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, same := range x.groups {
			for _, g := range same {
				if !yield(g) {
					return
				}
			}
		}
	}
}

func (x *labelIndex) parent(name string) *parent {
	p := x.parents[name]
	if p == nil {
		p = &parent{name: name, groups: map[*group]struct{}{}}
		x.parents[name] = p
	}
	return p
}

func (x *labelIndex) dropIfUnused(p *parent) {
	if len(p.labels) == 0 && len(p.groups) == 0 {
		delete(x.parents, p.name)
	}
}

// setParent gives a profile its labels and returns the matches that started or stopped.
func (x *labelIndex) setParent(name string, labels map[string]string) []match {
	p := x.parent(name)
	if maps.Equal(p.labels, labels) {
		x.dropIfUnused(p)
		return nil
	}
	for label, v := range p.labels {
		x.byInherited.remove(label, v, p)
	}
	p.labels = labels
	for label, v := range p.labels {
		x.byInherited.add(label, v, p)
	}
	var changed []match
	for g := range p.groups {
		changed = append(changed, x.rematch(g)...)
	}
	x.dropIfUnused(p)
	return changed
}

// hash does not depend on the order of the labels.
func (x *labelIndex) hash(id identity) uint64 {
	var sum uint64
	for label, v := range id.labels {
		sum += maphash.Comparable(x.seed, [2]string{label, v})
	}
	for i, name := range id.profiles {
		sum += maphash.String(x.seed, name) * uint64(i+2)
	}
	for _, port := range id.ports {
		sum = sum*31 + maphash.Comparable(x.seed, port)
	}
	return sum
}

// postings are lists of owners by label and value.
type postings[T comparable] map[string]map[string]map[T]struct{}

func (p postings[T]) add(label, value string, owner T) {
	values := p[label]
	if values == nil {
		values = map[string]map[T]struct{}{}
		p[label] = values
	}
	owners := values[value]
	if owners == nil {
		owners = map[T]struct{}{}
		values[value] = owners
	}
	owners[owner] = struct{}{}
}

func (p postings[T]) remove(label, value string, owner T) {
	values := p[label]
	delete(values[value], owner)
	if len(values[value]) == 0 {
		delete(values, value)
	}
	if len(values) == 0 {
		delete(p, label)
	}
}
