package attach

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// routeReader asks the kernel about routes. Not safe for concurrent use.
type routeReader struct {
	handle  *netlink.Handle
	sockets map[int]*nl.SocketHandle
}

func openRouteReader(o WatchOptions) (*routeReader, error) {
	handle, err := newHandle(o)
	if err != nil {
		return nil, err
	}
	at := netns.None()
	if o.NetNS != nil {
		at = *o.NetNS
	}
	socket, err := nl.GetNetlinkSocketAt(at, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		handle.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &routeReader{handle, map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: socket}}}, nil
}

func (r *routeReader) close() {
	r.handle.Close()
	r.sockets[unix.NETLINK_ROUTE].Close()
}

// deliveredTo is the interface to which the node's route of this address alone leads; 0: there is no such route, or it
// leads elsewhere than out of one interface.
func (r *routeReader) deliveredTo(a netip.Addr) (int, error) {
	routes, err := r.handle.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EINVAL), errors.Is(err, unix.ESRCH), errors.Is(err, unix.EAGAIN):
		return 0, nil // there is no route, or one of a type that delivers nothing
	case err != nil:
		return 0, fmt.Errorf("ask for the route to %s: %w", a, err)
	case len(routes) != 1:
		return 0, nil
	}
	route := routes[0]
	if route.Dst == nil || route.Type != unix.RTN_UNICAST || len(route.MultiPath) > 1 {
		return 0, nil
	}
	if ones, bits := route.Dst.Mask.Size(); ones != bits || bits != a.BitLen() {
		return 0, nil
	}
	return route.LinkIndex, nil
}

// hostRoute is what a notification says of a route of one address.
type hostRoute struct {
	addr    netip.Addr
	ifindex int // 0: it names none
	table   uint32
}

// list yields the routes of single addresses, of all tables. A route that changes meanwhile may be missing; the kernel notifies of it.
func (r *routeReader) list(family int, yield func(hostRoute)) error {
	return r.dump(family, func(m []byte) {
		if route, ok := parseHostRoute(m); ok {
			yield(route)
		}
	})
}

// dump yields the messages of all routes; after an interruption once more. A route that changes meanwhile may be missing.
func (r *routeReader) dump(family int, yield func([]byte)) error {
	const tries = 10
	var err error
	for range tries {
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
		request.Sockets = r.sockets
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
		err = request.ExecuteIter(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE, func(m []byte) bool {
			yield(m)
			return true
		})
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) { // notifications deliver the routes that an interrupted dump missed
		return fmt.Errorf("list routes: %w", err)
	}
	return nil
}

// parseHostRoute reads a route; not ok if it is of more than one address.
func parseHostRoute(m []byte) (r hostRoute, ok bool) {
	if len(m) < unix.SizeofRtMsg || int(m[1]) != 8*addressSize(m) {
		return r, false
	}
	route, ok := parseRoute(m)
	return route.hostRoute, ok && route.addr.IsValid()
}

// addressSize returns the size of the addresses of a struct rtmsg; 0: they are neither IPv4 nor IPv6.
func addressSize(m []byte) int {
	switch m[0] {
	case unix.AF_INET:
		return 4
	case unix.AF_INET6:
		return 16
	}
	return 0
}

// anyRoute is what the kernel says of a route. The address of one without a destination is not valid.
type anyRoute struct {
	hostRoute
	bits    int
	unicast bool
}

// parseRoute reads struct rtmsg and its attributes.
func parseRoute(m []byte) (r anyRoute, ok bool) {
	if len(m) < unix.SizeofRtMsg || addressSize(m) == 0 {
		return r, false
	}
	size := addressSize(m)
	r.bits, r.table, r.unicast = int(m[1]), uint32(m[4]), m[7] == unix.RTN_UNICAST
	native := nl.NativeEndian()
	for rest := m[unix.SizeofRtMsg:]; len(rest) >= unix.SizeofRtAttr; {
		length, kind := int(native.Uint16(rest)), native.Uint16(rest[2:])
		if length < unix.SizeofRtAttr || length > len(rest) {
			return r, false
		}
		switch value := rest[unix.SizeofRtAttr:length]; {
		case kind == unix.RTA_DST && len(value) == size:
			r.addr, _ = netip.AddrFromSlice(value)
		case kind == unix.RTA_OIF && len(value) == 4:
			r.ifindex = int(native.Uint32(value))
		case kind == unix.RTA_TABLE && len(value) == 4:
			r.table = native.Uint32(value)
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return r, true
}
