// Package further finds the pod that a further source belongs to: the one that lists it and that the node routes it to.
package further

import (
	"cmp"
	"net/netip"
	"slices"
)

// Listed is a prefix from which the pod behind an interface may send.
type Listed struct {
	Prefix    netip.Prefix
	Interface string
}

// Sorted returns the list in a fixed order, without repetitions. It may change the given list.
func Sorted(list []Listed) []Listed {
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), a.Prefix.Addr().Compare(b.Prefix.Addr()), cmp.Compare(a.Prefix.Bits(), b.Prefix.Bits()))
	})
	return slices.Compact(list)
}

// Route is a route of the node. Interface is empty if it leads to none of the interfaces that are asked about.
type Route struct {
	Prefix    netip.Prefix
	Interface string
}

// Routed has the further sources that the node routes to the pods which list them. It does not change, so goroutines can share it. A nil
// Routed has none.
type Routed struct {
	routes  map[netip.Prefix]string
	lengths [2][]int // of the routes' prefixes by IP version, the longest first
	listed  map[string][]netip.Prefix
}

// New returns the Routed of prefixes and routes. Of routes with equal prefixes the first counts. Routes inside of others must be there
// even if they lead elsewhere.
func New(listed []Listed, routes []Route) *Routed {
	r := &Routed{routes: map[netip.Prefix]string{}, listed: map[string][]netip.Prefix{}}
	for _, l := range listed {
		if p := l.Prefix.Masked(); !slices.Contains(r.listed[l.Interface], p) {
			r.listed[l.Interface] = append(r.listed[l.Interface], p)
		}
	}
	for _, route := range routes {
		p := route.Prefix.Masked()
		if _, known := r.routes[p]; known {
			continue
		}
		r.routes[p] = route.Interface
		if lengths := &r.lengths[version(p.Addr())]; !slices.Contains(*lengths, p.Bits()) {
			*lengths = append(*lengths, p.Bits())
		}
	}
	for _, lengths := range r.lengths {
		slices.SortFunc(lengths, func(a, b int) int { return cmp.Compare(b, a) })
	}
	return r
}

// version returns the index of an address's IP version.
func version(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// Interface returns the interface of the pod that lists an address, if the node routes the address there; otherwise it is empty.
func (r *Routed) Interface(a netip.Addr) string {
	if r == nil || !a.IsValid() {
		return ""
	}
	for _, bits := range r.lengths[version(a)] {
		p, err := a.Prefix(bits)
		if err != nil {
			continue
		}
		iface, ok := r.routes[p]
		if !ok {
			continue
		}
		if slices.ContainsFunc(r.listed[iface], func(l netip.Prefix) bool { return l.Contains(a) }) {
			return iface
		}
		return ""
	}
	return ""
}

// Interfaces returns the interfaces of pods that list something.
func Interfaces(listed []Listed) map[string]bool {
	all := map[string]bool{}
	for _, l := range listed {
		all[l.Interface] = true
	}
	return all
}
