package labelindex

import (
	"cmp"
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// fewPorts are found by looking at each of them. A pod may have 40,000.
const fewPorts = 16

func (r *groupRest[V, U]) setPorts(ports []model.NamedPort) {
	r.ports = ports
	if len(ports) > fewPorts {
		r.byName = slices.Clone(ports)
		slices.SortStableFunc(r.byName, func(a, b model.NamedPort) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// Ports are the named ports of each item. They must not be changed.
func (g *Group[V, U]) Ports() []model.NamedPort {
	if g.rest == nil {
		return nil
	}
	return g.rest.ports
}

// PortsNamed yields the ports that have a name, in order. It needs hardly more time if the group has very many other ports.
func (g *Group[V, U]) PortsNamed(name string) iter.Seq[model.NamedPort] {
	return func(yield func(model.NamedPort) bool) {
		if g.rest == nil {
			return
		}
		all := g.rest.ports
		if sorted := g.rest.byName; sorted != nil {
			first, _ := slices.BinarySearchFunc(sorted, name, func(p model.NamedPort, name string) int { return cmp.Compare(p.Name, name) })
			all = sorted[first:]
		}
		for _, p := range all {
			if p.Name == name {
				if !yield(p) {
					return
				}
			} else if g.rest.byName != nil {
				return
			}
		}
	}
}

// PortNames yields each name of a port once.
func (g *Group[V, U]) PortNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		if g.rest == nil {
			return
		}
		sorted := g.rest.byName
		for i, p := range sorted {
			if (i == 0 || sorted[i-1].Name != p.Name) && !yield(p.Name) {
				return
			}
		}
		if sorted != nil {
			return
		}
		few := g.rest.ports
		for i, p := range few {
			known := slices.ContainsFunc(few[:i], func(o model.NamedPort) bool { return o.Name == p.Name })
			if !known && !yield(p.Name) {
				return
			}
		}
	}
}
