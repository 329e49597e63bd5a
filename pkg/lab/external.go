package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// External is a machine outside the cluster, on the same segment as the nodes.
type External struct {
	machine
	lab *Lab
}

// AddExternal makes an outside host with the given addresses, or with the next ones of 192.0.2.0/24 and 2001:db8::/64
// if none are given. The nodes have routes to it, and it to them and to their pods.
func (l *Lab) AddExternal(name string, addrs ...netip.Addr) (*External, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := byte(len(l.extern) + 10)
	if l.closed || i > 250 {
		return nil, fmt.Errorf("add outside host %q: the lab is closed or full", name)
	}
	if len(addrs) == 0 {
		addrs = []netip.Addr{
			netip.AddrFrom4([4]byte{192, 0, 2, i}), netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: i}),
		}
	}
	host, err := newHost(name, l.spaceName(name), addrs)
	if err != nil {
		return nil, err
	}
	e := &External{machine{host, nil}, l}
	if err := e.join(l); err != nil {
		return nil, errors.Join(err, e.sockets.close(), e.remove())
	}
	l.extern = append(l.extern, e)
	return e, nil
}

// join puts the new host on the segment. The caller holds l.mu.
func (e *External) join(l *Lab) error {
	if err := l.attach(e.Host); err != nil {
		return err
	}
	eth0, err := e.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", e.name, err)
	}
	for _, a := range e.addrs {
		if err := e.links.addAddr(eth0, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	if err := e.links.ready("eth0", e.addrs...); err != nil {
		return err
	}
	for _, o := range l.extern {
		if err := connect(&e.machine, &o.machine); err != nil {
			return err
		}
	}
	for _, n := range l.nodes {
		if err := connect(&e.machine, &n.machine); err != nil {
			return err
		}
	}
	return nil
}

// AddAddr gives the outside host a further address, to which all nodes of that moment get a route. Addr and Addrs do
// not know it.
func (e *External) AddAddr(a netip.Addr) error {
	own, err := e.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", e.name, err)
	}
	host := netip.PrefixFrom(a, a.BitLen())
	if err := e.links.addAddr(own, host); err != nil {
		return err
	}
	if err := e.links.ready("eth0", a); err != nil { // else the first packets to it are lost
		return err
	}
	for _, n := range e.lab.Nodes() {
		eth0, err := n.links.handle.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("find eth0 of %s: %w", n.name, err)
		}
		if err := n.links.addRoute(eth0, host, e.Addr(a.Is6())); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAddr takes back what AddAddr gave.
func (e *External) RemoveAddr(a netip.Addr) error {
	own, err := e.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", e.name, err)
	}
	host := netip.PrefixFrom(a, a.BitLen())
	errs := []error{e.links.handle.AddrDel(own, &netlink.Addr{IPNet: ipNet(host)})}
	for _, n := range e.lab.Nodes() {
		errs = append(errs, n.removeRoute(host, e.Addr(a.Is6())))
	}
	return errors.Join(errs...)
}
