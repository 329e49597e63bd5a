package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rereadRoutes is how often the watch of routes reads all of them, whatever it has been notified of.
const rereadRoutes = 90 * time.Second

// WatchRoutes reports to which of the interfaces whose names begin with prefix the node delivers single addresses: the
// name of the interface by address. First as it is, then whenever it has changed, until ctx ends, which closes the
// channel. A reader who is slow gets the newest state. The maps are the reader's.
//
// An address is delivered to an interface if the kernel, asked for the route to it, answers with one of that address alone
// (/32 or /128), to that interface only. So policy routing, metrics and routes of other types count as they do for the
// node's own packets without a mark, and an address of the node itself is delivered to no interface.
func WatchRoutes(ctx context.Context, o WatchOptions, prefix string) (<-chan map[netip.Addr]string, error) {
	w := newRouteWatch(o, prefix)
	if err := w.open(); err != nil {
		return nil, err
	}
	go func() {
		defer close(w.out)
		keepUp(ctx, "routes", w, o.Logger)
		w.kernel.close()
	}()
	return w.out, nil
}

type routeWatch struct {
	options WatchOptions
	prefix  string
	sub     *subscription
	kernel  routeSource
	links   map[int]Interface  // workload interfaces by number
	seen    map[netip.Addr]int // interface by address that has, or had, a route of its own; 0: it has none now
	again   questions
	unread  bool
	out     chan map[netip.Addr]string
}

// routeSource answers about the routes of the node as they are. *routeReader is the kernel's.
type routeSource interface {
	deliveredTo(a netip.Addr) (ifindex int, err error)
	list(family int, yield func(hostRoute)) error
	close()
}

func newRouteWatch(o WatchOptions, prefix string) *routeWatch {
	return &routeWatch{options: o, prefix: prefix, links: map[int]Interface{}, seen: map[netip.Addr]int{}, unread: true,
		out: make(chan map[netip.Addr]string)}
}

// routeBuffer is the size of the socket's buffer: others may change many routes at once.
const routeBuffer = 4 << 20

func (w *routeWatch) open() error {
	sub, err := subscribe(w.options, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return err
	}
	err = errors.Join(onlyHostRoutes(sub.socket.GetFd()), sub.socket.SetReceiveBufferSize(routeBuffer, true))
	if err == nil && w.kernel == nil {
		var reader *routeReader
		if reader, err = openRouteReader(w.options); err == nil {
			w.kernel = reader
		}
	}
	if err == nil {
		err = w.reread()
	}
	if err != nil {
		sub.close()
		return fmt.Errorf("watch routes: %w", err)
	}
	w.sub = sub
	return nil
}

// reread reads everything.
func (w *routeWatch) reread() error {
	list, err := Interfaces(w.options, w.prefix)
	if err != nil {
		return err
	}
	before := w.delivered()
	clear(w.links)
	for _, i := range list {
		w.links[int(i.Ifindex)] = i
	}
	addrs := map[netip.Addr]bool{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		if err := w.kernel.list(family, func(r hostRoute) {
			if w.concerns(r) {
				addrs[r.addr] = true
			}
		}); err != nil {
			return err
		}
	}
	clear(w.seen)
	for a := range addrs {
		if err := w.ask(a); err != nil {
			return err
		}
	}
	w.unread = w.unread || !maps.Equal(before, w.delivered())
	w.again.add(time.Now(), addrs)
	return nil
}

// concerns reports whether a route may deliver an address to a workload interface, or may have kept another from it. One
// without an interface of its own, to several next hops or by a next hop object, may do either.
func (w *routeWatch) concerns(r hostRoute) bool {
	if !r.addr.IsValid() {
		return false
	}
	_, known := w.seen[r.addr]
	_, workload := w.links[r.ifindex]
	return known || workload || r.ifindex == 0 && r.table != unix.RT_TABLE_LOCAL
}

// ask has the kernel say where an address is delivered.
func (w *routeWatch) ask(a netip.Addr) error {
	ifindex, err := w.kernel.deliveredTo(a)
	if err != nil {
		return err
	}
	if _, ok := w.links[ifindex]; !ok {
		ifindex = 0
	}
	if was, known := w.seen[a]; !known || was != ifindex {
		w.seen[a], w.unread = ifindex, w.unread || was != ifindex
	}
	return nil
}

// delivered returns the routes to deliver: the name of the workload interface by address.
func (w *routeWatch) delivered() map[netip.Addr]string {
	all := make(map[netip.Addr]string, len(w.seen))
	for a, ifindex := range w.seen {
		if i, ok := w.links[ifindex]; ok {
			all[a] = i.Name
		}
	}
	return all
}

func (w *routeWatch) follow(ctx context.Context) error {
	defer w.sub.close()
	again := time.NewTicker(rereadRoutes)
	defer again.Stop()
	for {
		var out chan map[netip.Addr]string
		var now map[netip.Addr]string
		if w.unread {
			out, now = w.out, w.delivered()
		}
		var due <-chan time.Time
		if at, ok := w.again.next(); ok {
			due = time.After(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.sub.failed:
			return err
		case messages := <-w.sub.messages:
			changed := changes{addrs: map[netip.Addr]bool{}}
			for _, m := range messages {
				w.decode(m.Header.Type, unix.NlMsghdr(m.Header), m.Data, &changed)
			}
			if err := w.carryOut(changed); err != nil {
				return err
			}
		case <-due:
			if err := w.askAll(w.again.due(time.Now())); err != nil {
				return err
			}
		case <-again.C:
			if err := w.reread(); err != nil {
				return err
			}
		case out <- now:
			w.unread = false
		}
	}
}

// changes are what notifications give reason to ask the kernel about.
type changes struct {
	addrs map[netip.Addr]bool
	known bool // all that have been seen
	all   bool // everything
}

// carryOut has the kernel say what has changed, and notes what to ask it again. c must not change any more.
func (w *routeWatch) carryOut(c changes) error {
	if c.all {
		if err := w.reread(); err != nil {
			return err
		}
	}
	if c.known || c.all {
		for a := range w.seen {
			c.addrs[a] = true
		}
	}
	w.again.add(time.Now(), c.addrs)
	return w.askAll(c.addrs)
}

func (w *routeWatch) askAll(addrs map[netip.Addr]bool) error {
	for a := range addrs {
		if err := w.ask(a); err != nil {
			return err
		}
	}
	return nil
}

func (w *routeWatch) decode(kind uint16, header unix.NlMsghdr, payload []byte, c *changes) {
	switch kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if r, ok := parseHostRoute(payload); ok && w.concerns(r) {
			c.addrs[r.addr] = true
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		c.known = true
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.decodeLink(kind, header, payload, c)
	}
}

// decodeLink records a workload interface that came, went, or went up or down: the kernel does not say which routes
// that has ended.
func (w *routeWatch) decodeLink(kind uint16, header unix.NlMsghdr, payload []byte, c *changes) {
	if len(payload) < unix.SizeofIfInfomsg || payload[0] != unix.AF_UNSPEC {
		return
	}
	l, err := netlink.LinkDeserialize(&header, payload)
	if err != nil {
		return
	}
	now := interfaceOf(l.Attrs())
	index := int(now.Ifindex)
	was, known := w.links[index]
	gone := kind == unix.RTM_DELLINK || !strings.HasPrefix(now.Name, w.prefix)
	switch {
	case gone && !known || !gone && known && was == now:
		return
	case gone:
		delete(w.links, index)
		w.unread = true
	default:
		w.links[index] = now
		w.unread = w.unread || known && was.Name != now.Name
		// It may have had routes before it had this name; one that is made has none yet.
		c.all = c.all || !known && now.Up
	}
	for a, ifindex := range w.seen {
		if ifindex == index {
			c.addrs[a] = true
		}
	}
}

// onlyHostRoutes lets the kernel throw away notifications of routes of more than one address: a router may change a
// hundred thousand of them at once.
func onlyHostRoutes(fd int) error {
	const kindAt, lengthAt, all = 4, 17, 0xffffffff // of struct nlmsghdr, and of struct rtmsg behind it
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: kindAt},
		jump(unix.BPF_JEQ, uint32(nl.Swap16(unix.RTM_NEWROUTE)), 1, 0),
		jump(unix.BPF_JEQ, uint32(nl.Swap16(unix.RTM_DELROUTE)), 0, 3),
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: lengthAt},
		jump(unix.BPF_JEQ, 32, 1, 0),
		jump(unix.BPF_JEQ, 128, 0, 1),
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}); err != nil {
		return fmt.Errorf("filter notifications of routes: %w", err)
	}
	return nil
}
