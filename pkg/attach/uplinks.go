package attach

import (
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplinks are the names of the interfaces by which the default routes of the node lead, of table main and both families, but for routes that
// router advertisements have made. Each once, in order.
func Uplinks(o WatchOptions) ([]string, error) {
	handle, err := newHandle(o)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	var numbers []int
	main := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := listAll(func() ([]netlink.Route, error) {
			return handle.RouteListFiltered(family, main, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Type != unix.RTN_UNICAST || !everything(r.Dst) || r.Protocol == unix.RTPROT_RA { // a pod can send router advertisements
				continue
			}
			numbers = append(numbers, r.LinkIndex)
			for _, hop := range r.MultiPath {
				numbers = append(numbers, hop.LinkIndex)
			}
		}
	}
	if len(numbers) == 0 {
		return nil, nil
	}
	links, err := listAll(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		if slices.Contains(numbers, l.Attrs().Index) {
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Loopbacks are the names of the loopback interfaces, in order.
func Loopbacks(o WatchOptions) ([]string, error) {
	links, err := linksOf(o)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, l := range links {
		if l.Attrs().RawFlags&unix.IFF_LOOPBACK != 0 {
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// everything reports whether a route to dst is one to all addresses.
func everything(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	bits, _ := dst.Mask.Size()
	return bits == 0
}
