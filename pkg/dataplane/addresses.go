package dataplane

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// The steps that write addresses.

// writeAddrs writes changes in their order where it matters: a prefix inside another may only go once the other is what
// its addresses shall be. Changes of equal length and kind may be written together, and so may all if they are of single
// addresses only; then those that go make room for the others in a full map.
// An entry that cannot be written concerns that address only, see missed.
func (d *BPF) writeAddrs(changes []compile.AddrChange) error {
	nested := slices.ContainsFunc(changes, func(c compile.AddrChange) bool { return !c.Prefix.IsSingleIP() })
	for from := 0; from < len(changes); {
		to := from
		for to < len(changes) && (!nested ||
			changes[to].Prefix.Bits() == changes[from].Prefix.Bits() && changes[to].Gone == changes[from].Gone) {
			d.setAddr(changes[to])
			to++
		}
		if err := d.writeGroup(changes[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// writeGroup writes what has been recorded of changes.
func (d *BPF) writeGroup(changes []compile.AddrChange) error {
	err := d.syncAddrs()
	if err != nil {
		err = d.syncAddrs() // memory comes back as soon as the kernel has time
	}
	var missing, unknown []compile.AddrChange
	for _, c := range changes {
		switch {
		case d.isUnwritten(c.Prefix):
			missing = append(missing, c)
		case !c.Gone && d.noClass(c.Class):
			unknown = append(unknown, c)
		default:
			delete(d.out.addrs, c.Prefix)
		}
	}
	if len(missing)+len(unknown) == 0 {
		return nil
	}
	return errors.Join(d.missed(missing, rootOf(err)), d.missed(unknown, errNoClass))
}

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

// errNoClass says why an address is not entered whose own entry could be written.
var errNoClass = errors.New("its sets cannot be written to map class_sets")

// noClass reports whether the sets of a class could not be written, without which an interpreted policy cannot judge it.
func (d *BPF) noClass(class uint32) bool {
	if d.maps.ClassSets.Pending() == 0 {
		return false
	}
	return slices.ContainsFunc(d.maps.ClassSets.Unwritten(), func(key bpf.ClassChunk) bool { return key.Class == class })
}

// writeLeft writes what failed attempts have left, and what is to be repaired.
func (d *BPF) writeLeft() error {
	var errs []error
	for _, t := range d.allTables() {
		if t.Pending() > 0 {
			errs = append(errs, t.Sync())
		}
	}
	return errors.Join(errs...)
}

func (d *BPF) syncAddrs() error {
	return errors.Join(d.maps.IP4Host.Sync(), d.maps.IP6Host.Sync(), d.maps.IP4Net.Sync(), d.maps.IP6Net.Sync())
}

// setAddr records what an address shall be. Of an endpoint's own address it remembers whose it is: the interface may
// come later, or come again under another number.
func (d *BPF) setAddr(c compile.AddrChange) {
	if was, ok := d.owners[c.Prefix]; ok && (c.Gone || was.Endpoint != c.Endpoint) {
		delete(d.owners, c.Prefix)
	}
	info := bpf.AddrInfo{Class: c.Class, Flags: uint32(c.Flags)}
	if info.Flags&bpf.AddrEndpoint != 0 {
		d.owners[c.Prefix] = c
		info.Ifindex = d.ifindexOf(c.Endpoint)
	}
	if c.Gone {
		d.out.next = time.Time{} // there may be room
		d.deleteAddr(c.Prefix)
		return
	}
	addr := c.Prefix.Addr()
	switch {
	case addr.Is4() && c.Prefix.IsSingleIP():
		d.maps.IP4Host.Set(bpfmaps.IP4(addr), info)
	case addr.Is4():
		d.maps.IP4Net.Set(bpfmaps.Net4(c.Prefix), info)
	case c.Prefix.IsSingleIP():
		d.maps.IP6Host.Set(bpfmaps.IP6(addr), info)
	default:
		d.maps.IP6Net.Set(bpfmaps.Net6(c.Prefix), info)
	}
}

// ifindexOf is the interface an endpoint is programmed on, also if an earlier agent did it and this one is about to take
// the endpoint over; 0: none.
func (d *BPF) ifindexOf(id model.EndpointID) uint32 {
	if ep := d.bound[id]; ep != nil {
		return ep.ifindex
	}
	for _, b := range d.plan.Bind {
		if b.Endpoint.ID != id {
			continue
		}
		if old, ok := d.adopted[b.Endpoint.Iface]; ok && d.bound[old] != nil {
			return d.bound[old].ifindex
		}
	}
	return 0
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
func (d *BPF) isUnwritten(p netip.Prefix) bool {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		return d.maps.IP4Host.IsUnwritten(bpfmaps.IP4(addr))
	case addr.Is4():
		return d.maps.IP4Net.IsUnwritten(bpfmaps.Net4(p))
	case p.IsSingleIP():
		return d.maps.IP6Host.IsUnwritten(bpfmaps.IP6(addr))
	default:
		return d.maps.IP6Net.IsUnwritten(bpfmaps.Net6(p))
	}
}

// believed is the entry that the kernel has of an address, as far as is known.
func (d *BPF) believed(p netip.Prefix) (bpf.AddrInfo, bool) {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		return d.maps.IP4Host.Believed(bpfmaps.IP4(addr))
	case addr.Is4():
		return d.maps.IP4Net.Believed(bpfmaps.Net4(p))
	case p.IsSingleIP():
		return d.maps.IP6Host.Believed(bpfmaps.IP6(addr))
	default:
		return d.maps.IP6Net.Believed(bpfmaps.Net6(p))
	}
}

func (d *BPF) deleteAddr(p netip.Prefix) {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		d.maps.IP4Host.Delete(bpfmaps.IP4(addr))
	case addr.Is4():
		d.maps.IP4Net.Delete(bpfmaps.Net4(p))
	case p.IsSingleIP():
		d.maps.IP6Host.Delete(bpfmaps.IP6(addr))
	default:
		d.maps.IP6Net.Delete(bpfmaps.Net6(p))
	}
}
