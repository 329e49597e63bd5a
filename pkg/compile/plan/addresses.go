package plan

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// addresses knows what an address is apart from sets: an endpoint's own, the node's, a service's. It marks
// them so in the classes.
type addresses struct {
	classes         *classes.Classes
	claims          map[netip.Prefix][]model.EndpointID
	hosts, newHosts []netip.Prefix // this node's addresses as the dataplane reports them
	old             []netip.Prefix // found in the kernel at the start; nil after the first plan
}

func newAddresses(c *classes.Classes) *addresses {
	return &addresses{classes: c, claims: map[netip.Prefix][]model.EndpointID{}}
}

// setHosts replaces this node's own addresses; markHosts applies that.
func (a *addresses) setHosts(addrs []netip.Addr) {
	a.newHosts = nil
	for _, addr := range addrs {
		if !addr.IsValid() {
			continue
		}
		addr = addr.Unmap().WithZone("")
		a.newHosts = append(a.newHosts, netip.PrefixFrom(addr, addr.BitLen()))
	}
}

func (a *addresses) markHosts() {
	for _, p := range a.hosts {
		if !slices.Contains(a.newHosts, p) {
			a.classes.Mark(p, classes.MarkHost, false)
		}
	}
	for _, p := range a.newHosts {
		if !slices.Contains(a.hosts, p) {
			a.classes.Mark(p, classes.MarkHost, true)
		}
	}
	a.hosts = a.newHosts
}

// mark applies a change of a set that no rule refers to.
func (a *addresses) mark(m classes.Marks, change *model.SetChange) {
	if change.Gone {
		a.classes.Unmark(m)
		return
	}
	for _, p := range change.Removed {
		a.classes.Mark(p, m, false)
	}
	for _, p := range change.Added {
		a.classes.Mark(p, m, true)
	}
}

// claim gives an endpoint the addresses of its policy instead of those that it had; nil has none. An address is given to
// one endpoint at most: who owns it was decided before. That two have it lasts no longer than while the two halves of one
// Changes are applied.
func (a *addresses) claim(id model.EndpointID, was, is *model.EndpointPolicy) {
	var old, now []netip.Prefix
	if was != nil {
		old = singles(was.Addrs)
	}
	if is != nil {
		now = singles(is.Addrs)
	}
	if was != nil && is != nil && was.Iface == is.Iface && slices.Equal(old, now) {
		return
	}
	for _, p := range slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(old, now)), netip.Prefix.Compare)) {
		ids := slices.DeleteFunc(a.claims[p], func(other model.EndpointID) bool { return other == id })
		if slices.Contains(now, p) {
			ids = append(ids, id)
		}
		if len(ids) == 0 {
			delete(a.claims, p)
			a.classes.Disown(p)
			continue
		}
		a.claims[p] = ids
		a.classes.Own(p, ids[0])
	}
}

func singles(addrs []netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range addrs {
		if a.IsValid() {
			all = append(all, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
		}
	}
	return all
}

// moved returns the endpoints whose own addresses have joined or left sets since the last call; all: any may be one.
func (a *addresses) moved() (some []model.EndpointID, all bool) {
	prefixes, all := a.classes.Local()
	if all {
		return nil, true
	}
	for _, p := range prefixes {
		some = append(some, a.claims[p]...)
	}
	return some, false
}

// adopt notes the addresses found in the kernel.
func (a *addresses) adopt(entries []classes.AddrChange) {
	for _, e := range entries {
		a.old = append(a.old, e.Prefix)
	}
}

// keepOld is for the first plan: the addresses found in the kernel stay members of the sets that are about to go.
func (a *addresses) keepOld(going map[uint32]bool) {
	for _, p := range a.old {
		a.classes.Keep(p, going)
	}
	a.old = nil
}
