package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interface is one workload interface as it is now.
type Interface struct {
	Ifindex uint32
	Name    string
	Up      bool // administratively
	Gone    bool // removed, renamed to something else, or moved to another namespace
}

// Interfaces lists the interfaces whose names begin with prefix, by ifindex.
func Interfaces(o WatchOptions, prefix string) ([]Interface, error) {
	links, err := linksOf(o)
	if err != nil {
		return nil, err
	}
	var list []Interface
	for _, l := range links {
		if a := l.Attrs(); strings.HasPrefix(a.Name, prefix) {
			list = append(list, interfaceOf(a))
		}
	}
	slices.SortFunc(list, func(a, b Interface) int { return int(int64(a.Ifindex) - int64(b.Ifindex)) })
	return list, nil
}

// Present returns those of the named interfaces that are in this network namespace.
func Present(names map[string]bool) (map[string]bool, error) {
	all, err := Interfaces(WatchOptions{}, "")
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, i := range all {
		if names[i.Name] {
			there[i.Name] = true
		}
	}
	return there, nil
}

// linksOf lists all interfaces.
func linksOf(o WatchOptions) ([]netlink.Link, error) {
	handle, err := newHandle(o)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := listAll(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return links, nil
}

func interfaceOf(a *netlink.LinkAttrs) Interface {
	return Interface{Ifindex: uint32(a.Index), Name: a.Name, Up: a.RawFlags&unix.IFF_UP != 0}
}

func newHandle(o WatchOptions) (*netlink.Handle, error) {
	var handle *netlink.Handle
	var err error
	if o.NetNS != nil {
		handle, err = netlink.NewHandleAt(*o.NetNS, unix.NETLINK_ROUTE)
	} else {
		handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	}
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return handle, nil
}

// listAll repeats a listing that a concurrent change has interrupted.
func listAll[T any](list func() ([]T, error)) ([]T, error) {
	const tries = 10
	var all []T
	var err error
	for range tries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
	return all, err
}

// WatchInterfaces returns the interfaces whose names begin with prefix, in no particular order, and reports them: first those that exist, then
// every change, until ctx ends, which closes the channel. If one goes that was returned or reported, that is reported. A reader who is slow
// gets the newest state of each interface, in the order of their first unread change. An interface that comes under the number of one that
// went may be reported without its going. After changes were lost, all interfaces are reported again.
func WatchInterfaces(ctx context.Context, o WatchOptions, prefix string) (now []Interface, changes <-chan Interface, err error) {
	w := &interfaceWatch{options: o, prefix: prefix, known: map[uint32]Interface{}, out: make(chan Interface)}
	if err := w.open(); err != nil {
		return nil, nil, err
	}
	now = slices.Collect(maps.Values(w.known))
	go func() {
		defer close(w.out)
		keepUp(ctx, "interfaces", w, o.Logger)
	}()
	return now, w.out, nil
}

type interfaceWatch struct {
	options WatchOptions
	prefix  string
	sub     *subscription
	known   map[uint32]Interface // as last seen
	unread  []uint32             // those whose state is to be reported; their order
	gone    map[uint32]Interface // those of unread that are not known any more
	out     chan Interface
}

func (w *interfaceWatch) open() error {
	sub, err := subscribe(w.options, unix.RTNLGRP_LINK)
	if err != nil {
		return err
	}
	now, err := Interfaces(w.options, w.prefix)
	if err != nil {
		sub.close()
		return err
	}
	w.sub = sub
	exists := map[uint32]bool{}
	for _, i := range now {
		exists[i.Ifindex] = true
		w.see(i)
		w.queue(i.Ifindex) // it may have gone and come again under its name and number, and have no programs
	}
	for ifindex := range w.known {
		if !exists[ifindex] {
			w.see(Interface{Ifindex: ifindex, Gone: true})
		}
	}
	return nil
}

func (w *interfaceWatch) follow(ctx context.Context) error {
	defer w.sub.close()
	for {
		var out chan Interface
		var next Interface
		if len(w.unread) > 0 {
			out, next = w.out, w.stateOf(w.unread[0])
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.sub.failed:
			return err
		case messages := <-w.sub.messages:
			for _, m := range messages {
				w.decode(m.Header.Type, unix.NlMsghdr(m.Header), m.Data)
			}
		case out <- next:
			delete(w.gone, next.Ifindex)
			w.unread = w.unread[1:]
		}
	}
}

func (w *interfaceWatch) decode(kind uint16, header unix.NlMsghdr, payload []byte) {
	if kind != unix.RTM_NEWLINK && kind != unix.RTM_DELLINK || len(payload) < unix.SizeofIfInfomsg {
		return
	}
	// A DELLINK of another family is a bridge port leaving its bridge, not an interface going.
	if family := payload[0]; family != unix.AF_UNSPEC {
		return
	}
	l, err := netlink.LinkDeserialize(&header, payload)
	if err != nil {
		return
	}
	i := interfaceOf(l.Attrs())
	i.Gone = kind == unix.RTM_DELLINK || !strings.HasPrefix(i.Name, w.prefix)
	w.see(i)
}

// see records an interface's state and queues it if it has changed.
func (w *interfaceWatch) see(i Interface) {
	before, known := w.known[i.Ifindex]
	if known && before == i || !known && i.Gone {
		return
	}
	if w.gone == nil {
		w.gone = map[uint32]Interface{}
	}
	if i.Gone {
		delete(w.known, i.Ifindex)
		w.gone[i.Ifindex] = Interface{Ifindex: i.Ifindex, Name: before.Name, Gone: true}
	} else {
		w.known[i.Ifindex] = i
		delete(w.gone, i.Ifindex)
	}
	w.queue(i.Ifindex)
}

// queue has an interface's state reported.
func (w *interfaceWatch) queue(ifindex uint32) {
	if !slices.Contains(w.unread, ifindex) {
		w.unread = append(w.unread, ifindex)
	}
}

func (w *interfaceWatch) stateOf(ifindex uint32) Interface {
	if i, ok := w.known[ifindex]; ok {
		return i
	}
	return w.gone[ifindex]
}
