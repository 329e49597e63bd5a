package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Node is a machine that runs pods and forwards IPv4 and IPv6. No reverse-path filter is on. Its interface eth0 is on
// the segment it shares with the other nodes and outside hosts.
type Node struct {
	machine
	lab *Lab

	unplugs  unplugs
	plugging sync.RWMutex // held for reading while a pod is made or removed; several may be at a time

	mu       sync.Mutex
	pods     map[string]*Pod // by namespace/name; nil while it is made or removed
	next     byte            // last byte of the next address given out
	services map[serviceKey]Service
	jumps    map[bool]bool // whether the built-in chains lead to the lab's, by is-IPv6
}

// AddNode makes a node that all nodes and outside hosts have routes to, with the given addresses or with 10.66.0.i and
// fd66::i. Names are unique in the lab and short: they end up in the name of a namespace. A lab has at most 250 nodes.
func (l *Lab) AddNode(name string, addrs ...netip.Addr) (*Node, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := byte(len(l.nodes) + 1)
	if l.closed || i > 250 {
		return nil, fmt.Errorf("add node %q: the lab is closed or full", name)
	}
	if len(addrs) == 0 {
		addrs = []netip.Addr{netip.AddrFrom4([4]byte{10, 66, 0, i}), netip.AddrFrom16([16]byte{0xfd, 0x66, 15: i})}
	}
	host, err := newHost(name, l.spaceName(name), addrs)
	if err != nil {
		return nil, err
	}
	n := &Node{
		machine: machine{host, podPrefixes(i)}, lab: l, next: 2,
		pods: map[string]*Pod{}, services: map[serviceKey]Service{}, jumps: map[bool]bool{},
	}
	if err := n.join(l); err != nil {
		return nil, errors.Join(err, n.sockets.close(), n.remove())
	}
	l.nodes = append(l.nodes, n)
	return n, nil
}

// podPrefixes are the prefixes node i's pods get their addresses from.
func podPrefixes(i byte) []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, i, 0}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x65, 7: i}), 64),
	}
}

// join puts the new node on the segment. The caller holds l.mu.
func (n *Node) join(l *Lab) error {
	if err := n.sysctl("net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1"); err != nil {
		return err
	}
	if err := l.attach(n.Host); err != nil {
		return err
	}
	eth0, err := n.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", n.name, err)
	}
	for _, a := range n.addrs {
		if err := n.links.addAddr(eth0, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	if err := n.links.ready("eth0", n.addrs...); err != nil {
		return err
	}
	if err := n.links.addRoute(eth0, default4, upstream4); err != nil {
		return err
	}
	if err := n.links.addRoute(eth0, default6, upstream6); err != nil {
		return err
	}
	for _, o := range l.nodes {
		if err := connect(&n.machine, &o.machine); err != nil {
			return err
		}
	}
	for _, o := range l.extern {
		if err := connect(&n.machine, &o.machine); err != nil {
			return err
		}
	}
	return nil
}

// PodPrefixes are the prefixes its pods get their addresses from: IPv4, then IPv6.
func (n *Node) PodPrefixes() []netip.Prefix { return slices.Clone(n.behind) }

// Pod returns the pod of that name; nil if there is none.
func (n *Node) Pod(namespace, name string) *Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[namespace+"/"+name]
}

func (n *Node) allPods() []*Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*Pod, 0, len(n.pods))
	for _, p := range n.pods {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// stopPods is called once no more pods can be made.
func (n *Node) stopPods() error {
	n.plugging.Lock() // waits for pods that are being made or removed
	defer n.plugging.Unlock()
	var errs []error
	for _, p := range n.allPods() {
		errs = append(errs, p.sockets.close())
	}
	return errors.Join(errs...)
}

func (n *Node) removePods() error {
	var errs []error
	for _, p := range n.allPods() {
		errs = append(errs, p.remove())
	}
	return errors.Join(errs...)
}

// RouteVia sends traffic for the prefix, for example that of Service addresses or of a pod with an address of its own
// choice, to the node.
func (m *machine) RouteVia(dst netip.Prefix, n *Node) error {
	eth0, err := m.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", m.name, err)
	}
	return m.links.addRoute(eth0, dst, n.Addr(dst.Addr().Is6()))
}

// UnrouteVia takes RouteVia back.
func (m *machine) UnrouteVia(dst netip.Prefix, n *Node) error {
	return m.removeRoute(dst, n.Addr(dst.Addr().Is6()))
}

// removeRoute removes the route to dst by way of the gateway; it is no error if there is none.
func (m *machine) removeRoute(dst netip.Prefix, via netip.Addr) error {
	err := m.links.handle.RouteDel(&netlink.Route{Dst: ipNet(dst), Gw: via.AsSlice()})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to %s from %s: %w", dst, m.name, err)
	}
	return nil
}
