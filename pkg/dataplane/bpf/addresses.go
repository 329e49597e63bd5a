package bpf

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// addresses are the entries of addresses and prefixes: their class, and of an endpoint's own its interface.
type addresses struct {
	maps      *bpfmaps.Addresses
	owners    map[netip.Prefix]classes.AddrChange // addresses of endpoints, to be written again when an interface changes
	unwritten plans.Unwritten
}

func newAddresses(m *bpfmaps.Addresses) *addresses {
	return &addresses{maps: m, owners: map[netip.Prefix]classes.AddrChange{}, unwritten: plans.Unwritten{}}
}

// groups are changes in their order where it matters: a prefix inside another may only be removed once the other has
// the desired class of its addresses. Changes of equal length and kind may be written together. So may all changes
// if they are of single addresses only; removals then make room for the others in a full map.
func groups(changes []classes.AddrChange) iter.Seq[[]classes.AddrChange] {
	nested := slices.ContainsFunc(changes, func(c classes.AddrChange) bool { return !c.Prefix.IsSingleIP() })
	return func(yield func([]classes.AddrChange) bool) {
		for from := 0; from < len(changes); {
			to := from + 1
			for to < len(changes) && (!nested ||
				changes[to].Prefix.Bits() == changes[from].Prefix.Bits() && changes[to].Gone == changes[from].Gone) {
				to++
			}
			if !yield(changes[from:to]) {
				return
			}
			from = to
		}
	}
}

// set records the desired entry of an address. For an endpoint's own address it remembers the endpoint: the interface
// may come later, or come again under another number. ifindex is the interface that endpoint is programmed on; 0: none.
func (a *addresses) set(c classes.AddrChange, ifindex uint32) {
	if was, ok := a.owners[c.Prefix]; ok && (c.Gone || was.Endpoint != c.Endpoint) {
		delete(a.owners, c.Prefix)
	}
	if c.Gone {
		a.remove(c.Prefix)
		return
	}
	info := bpf.AddrInfo{Class: c.Class, Flags: uint32(c.Flags)}
	if info.Flags&bpf.AddrEndpoint != 0 {
		a.owners[c.Prefix] = c
		info.Ifindex = ifindex
	}
	switch addr := c.Prefix.Addr(); {
	case addr.Is4() && c.Prefix.IsSingleIP():
		a.maps.IP4Host.Set(bpfmaps.IP4(addr), info)
	case addr.Is4():
		a.maps.IP4Net.Set(bpfmaps.Net4(c.Prefix), info)
	case c.Prefix.IsSingleIP():
		a.maps.IP6Host.Set(bpfmaps.IP6(addr), info)
	default:
		a.maps.IP6Net.Set(bpfmaps.Net6(c.Prefix), info)
	}
}

// write writes the recorded changes. refused reports that some could not be written: those are in unwritten, and their
// old entries are removed. known tells which entries are of no use although they could be written.
func (a *addresses) write(changes []classes.AddrChange, known *classSets) (refused bool) {
	err := a.sync()
	if err != nil {
		err = a.sync() // memory comes back as soon as the kernel has time
	}
	var failed plans.Unwritten // mostly there are none
	fail := func(c classes.AddrChange, cause error) {
		if failed == nil {
			failed = plans.Unwritten{}
		}
		failed[c.Prefix] = plans.Refused{Change: c, Cause: cause}
	}
	for _, c := range changes {
		switch {
		case a.isUnwritten(c.Prefix):
			fail(c, rootOf(err))
		case !c.Gone && known.incomplete(c.Class):
			fail(c, errNoClass)
		default:
			delete(a.unwritten, c.Prefix)
		}
	}
	if len(failed) == 0 {
		return false
	}
	for p := range failed {
		a.remove(p)
	}
	maps.Copy(a.unwritten, failed)
	_ = a.sync() // a deletion that fails stays pending, and writeLeft reports it
	return true
}

// errNoClass says why an address is not entered whose own entry could be written.
var errNoClass = errors.New("its sets cannot be written to map class_sets")

// rootOf is what the kernel said to the first write that failed.
func rootOf(err error) error {
	for {
		switch e := err.(type) {
		case interface{ Unwrap() []error }:
			err = e.Unwrap()[0]
		case interface{ Unwrap() error }:
			if e.Unwrap() == nil {
				return err
			}
			err = e.Unwrap()
		default:
			return err
		}
	}
}

func (a *addresses) sync() error {
	return a.maps.Sync()
}

// of are an endpoint's own addresses, to be written again: its interface has another number now.
func (a *addresses) of(policy *model.EndpointPolicy) []classes.AddrChange {
	var changes []classes.AddrChange
	for _, addr := range policy.Addrs {
		if c, ok := a.owners[netip.PrefixFrom(addr.WithZone(""), addr.BitLen())]; ok && c.Endpoint == policy.ID {
			changes = append(changes, c)
		}
	}
	return changes
}

// err names addresses that have no entry because it could not be written.
func (a *addresses) err() error {
	return a.unwritten.Err(func(p netip.Prefix, cause error) error {
		return fmt.Errorf("write map %s: %s belongs to no set and no endpoint: %w", addrMap(p), p, cause)
	})
}

// addrMap is the name of the map that has a prefix.
func addrMap(p netip.Prefix) string {
	switch {
	case p.Addr().Is4() && p.IsSingleIP():
		return bpf.MargayMapIp4Host
	case p.Addr().Is4():
		return bpf.MargayMapIp4Net
	case p.IsSingleIP():
		return bpf.MargayMapIp6Host
	default:
		return bpf.MargayMapIp6Net
	}
}

// isUnwritten reports whether the last change of an address's entry has not been written.
func (a *addresses) isUnwritten(p netip.Prefix) bool {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		return a.maps.IP4Host.IsUnwritten(bpfmaps.IP4(addr))
	case addr.Is4():
		return a.maps.IP4Net.IsUnwritten(bpfmaps.Net4(p))
	case p.IsSingleIP():
		return a.maps.IP6Host.IsUnwritten(bpfmaps.IP6(addr))
	default:
		return a.maps.IP6Net.IsUnwritten(bpfmaps.Net6(p))
	}
}

// believed is the entry that the kernel has of an address, as far as is known.
func (a *addresses) believed(p netip.Prefix) (bpf.AddrInfo, bool) {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		return a.maps.IP4Host.Believed(bpfmaps.IP4(addr))
	case addr.Is4():
		return a.maps.IP4Net.Believed(bpfmaps.Net4(p))
	case p.IsSingleIP():
		return a.maps.IP6Host.Believed(bpfmaps.IP6(addr))
	default:
		return a.maps.IP6Net.Believed(bpfmaps.Net6(p))
	}
}

// believedClass is the class of that entry.
func (a *addresses) believedClass(p netip.Prefix) (class uint32, ok bool) {
	info, ok := a.believed(p)
	return info.Class, ok
}

func (a *addresses) remove(p netip.Prefix) {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		a.maps.IP4Host.Delete(bpfmaps.IP4(addr))
	case addr.Is4():
		a.maps.IP4Net.Delete(bpfmaps.Net4(p))
	case p.IsSingleIP():
		a.maps.IP6Host.Delete(bpfmaps.IP6(addr))
	default:
		a.maps.IP6Net.Delete(bpfmaps.Net6(p))
	}
}
