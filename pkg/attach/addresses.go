package attach

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses lists this node's own addresses, IPv4 and IPv6, ascending, without duplicates and without loopback ones.
func Addresses(o WatchOptions) ([]netip.Addr, error) {
	handle, err := newHandle(o)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	all, err := listAll(func() ([]netlink.Addr, error) { return handle.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var list []netip.Addr
	for _, a := range all {
		if a.IPNet == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.Unmap().IsLoopback() {
			list = append(list, addr.Unmap())
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return slices.Compact(list), nil
}

// WatchAddresses reports what Addresses lists: first as it is, then whenever it has changed, until ctx ends, which
// closes the channel. A reader who is slow gets the newest list. The lists are the reader's.
func WatchAddresses(ctx context.Context, o WatchOptions) (<-chan []netip.Addr, error) {
	w := &addressWatch{options: o, out: make(chan []netip.Addr)}
	if err := w.open(); err != nil {
		return nil, err
	}
	w.unread = true
	go func() {
		defer close(w.out)
		keepUp(ctx, "addresses", w, o.Logger)
	}()
	return w.out, nil
}

type addressWatch struct {
	options WatchOptions
	sub     *subscription
	now     []netip.Addr
	unread  bool
	out     chan []netip.Addr
}

func (w *addressWatch) open() error {
	sub, err := subscribe(w.options, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return err
	}
	if err := w.reread(); err != nil {
		sub.close()
		return err
	}
	w.sub = sub
	return nil
}

func (w *addressWatch) reread() error {
	now, err := Addresses(w.options)
	if err != nil {
		return err
	}
	if !slices.Equal(now, w.now) {
		w.now, w.unread = now, true
	}
	return nil
}

func (w *addressWatch) follow(ctx context.Context) error {
	defer w.sub.close()
	for {
		var out chan []netip.Addr
		if w.unread {
			out = w.out
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.sub.failed:
			return err
		case <-w.sub.messages:
			if err := w.reread(); err != nil {
				return err
			}
		case out <- slices.Clone(w.now):
			w.unread = false
		}
	}
}
