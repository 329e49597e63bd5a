package labelindex

import (
	"hash/maphash"
	"iter"

	"github.com/margay-project/margay/pkg/mapsize"
	"github.com/margay-project/margay/pkg/model"
)

// groupTable has the groups by their identity.
type groupTable[V, U any] struct {
	seed   maphash.Seed
	groups map[uint64]*Group[V, U] // by hash; those of the same are a list
	most   int                     // groups, see mapsize
}

func newGroupTable[V, U any]() *groupTable[V, U] {
	return &groupTable[V, U]{seed: maphash.MakeSeed(), groups: map[uint64]*Group[V, U]{}}
}

// find returns the group with an identity that is not stale; nil if there is none. hash is what add needs then.
func (t *groupTable[V, U]) find(id Identity) (g *Group[V, U], hash uint64) {
	hash = t.hash(id)
	g = t.groups[hash]
	for g != nil && (!g.has(id) || g.IsStale()) {
		g = g.next
	}
	return g, hash
}

// findLike does so for the identity of a group.
func (t *groupTable[V, U]) findLike(was *Group[V, U]) (g *Group[V, U], hash uint64) {
	hash = t.hashGroup(was)
	g = t.groups[hash]
	for g != nil && (!g.isLike(was) || g.IsStale()) {
		g = g.next
	}
	return g, hash
}

// add adds a group that find has not found.
func (t *groupTable[V, U]) add(g *Group[V, U], hash uint64) {
	g.next = t.groups[hash]
	t.groups[hash] = g
}

// remove takes a group out.
func (t *groupTable[V, U]) remove(g *Group[V, U]) { t.unchain(g, t.hashGroup(g)) }

// unchain takes the group out of those of its hash.
func (t *groupTable[V, U]) unchain(g *Group[V, U], hash uint64) {
	if t.groups[hash] != g {
		before := t.groups[hash]
		for before.next != g {
			before = before.next
		}
		before.next = g.next
		return
	}
	if t.groups[hash] = g.next; g.next == nil {
		delete(t.groups, hash)
	}
}

// all yields every group.
func (t *groupTable[V, U]) all() iter.Seq[*Group[V, U]] {
	return func(yield func(*Group[V, U]) bool) {
		for _, g := range t.groups {
			for ; g != nil; g = g.next {
				if !yield(g) {
					return
				}
			}
		}
	}
}

func (t *groupTable[V, U]) shrink() { mapsize.Shrink(&t.groups, &t.most) }

// hash does not depend on the order of the labels.
func (t *groupTable[V, U]) hash(id Identity) uint64 {
	var sum uint64
	for name, value := range id.Labels {
		sum += hashLabel(t.seed, name, value)
	}
	for i, name := range id.Parents {
		sum += hashParent(t.seed, i, name)
	}
	return sum + hashPorts(t.seed, id.Ports)
}

// hashGroup is the hash of the group's identity.
func (t *groupTable[V, U]) hashGroup(g *Group[V, U]) uint64 {
	var sum uint64
	for _, l := range g.labels {
		sum += hashLabel(t.seed, l.of.name, l.value)
	}
	for i, p := range g.parents() {
		sum += hashParent(t.seed, i, p.name)
	}
	return sum + hashPorts(t.seed, g.Ports())
}

func hashLabel(seed maphash.Seed, name, value string) uint64 {
	return maphash.Comparable(seed, [2]string{name, value})
}

func hashParent(seed maphash.Seed, i int, name string) uint64 {
	return maphash.String(seed, name) * uint64(i+2)
}

func hashPorts(seed maphash.Seed, ports []model.NamedPort) uint64 {
	var sum uint64
	for _, port := range ports {
		sum = sum*31 + maphash.Comparable(seed, port)
	}
	return sum
}
