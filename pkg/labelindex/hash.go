package labelindex

import (
	"hash/maphash"

	"github.com/margay-project/margay/pkg/model"
)

// hash does not depend on the order of the labels.
func (x *Index[V, U]) hash(id Identity) uint64 {
	var sum uint64
	for name, value := range id.Labels {
		sum += hashLabel(x.seed, name, value)
	}
	for i, name := range id.Parents {
		sum += hashParent(x.seed, i, name)
	}
	return sum + hashPorts(x.seed, id.Ports)
}

// hashGroup is the hash of the group's identity.
func (x *Index[V, U]) hashGroup(g *Group[V, U]) uint64 {
	var sum uint64
	for _, l := range g.labels {
		sum += hashLabel(x.seed, l.of.name, l.value)
	}
	for i, p := range g.parents {
		sum += hashParent(x.seed, i, p.name)
	}
	return sum + hashPorts(x.seed, g.ports)
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
