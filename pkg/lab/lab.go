// Package lab builds a small cluster out of network namespaces: nodes that route as Calico's do, pods behind real cali*
// veth pairs, hosts outside the cluster, and one Ethernet segment that joins nodes and outside hosts. Servers and clients
// in it are package echo's. Nothing is touched outside of namespaces named mgy-*.
//
// Addresses: node i is 10.66.0.i and fd66::i, its pods come from 10.65.i.0/24 and fd65:0:0:i::/64, outside hosts from
// 192.0.2.0/24 and 2001:db8::/64. Labs are independent of one another and may exist side by side with the same addresses.
//
// It needs CAP_SYS_ADMIN and CAP_NET_ADMIN. All methods are safe for concurrent use.
package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// The nodes' default gateway. It answers ARP and forwards nothing, so packets to unused addresses are lost silently, as
// on the Internet. Nodes need a default route: proxy ARP answers only for addresses that are routed elsewhere.
var (
	upstream4 = netip.AddrFrom4([4]byte{10, 66, 0, 254})
	upstream6 = netip.AddrFrom16([16]byte{0xfd, 0x66, 15: 254})
)

// Lab is one cluster. It owns everything made through it and through its nodes.
type Lab struct {
	id string

	mu     sync.Mutex
	closed bool
	fabric *Host // holds the bridge br0
	bridge netlink.Link
	ports  int
	nodes  []*Node
	extern []*External
	pods   int // ever made: names of their namespaces
}

// New makes a cluster without nodes. The caller owns it and ends it with Close.
func New() (*Lab, error) {
	l := &Lab{id: ns.NewID()}
	fabric, err := newHost("net", l.spaceName("net"), nil)
	if err != nil {
		return nil, err
	}
	l.fabric = fabric
	if err := l.addBridge(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) addBridge() error {
	snooping := false // without a querier it would lose neighbour discovery
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}, MulticastSnooping: &snooping}
	if err := l.fabric.links.handle.LinkAdd(br); err != nil {
		return fmt.Errorf("add bridge br0 in %s: %w", l.fabric.Namespace(), err)
	}
	link, err := l.fabric.links.up("br0")
	if err != nil {
		return err
	}
	l.bridge = link
	for _, a := range []netip.Addr{upstream4, upstream6} {
		if err := l.fabric.links.addAddr(link, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	return nil
}

// ID is the unique part of the names of its namespaces: mgy-<id>-….
func (l *Lab) ID() string { return l.id }

func (l *Lab) spaceName(part string) string { return ns.Prefix + l.id + "-" + part }

// attach gives the host an interface eth0 on the shared segment. The caller holds l.mu.
func (l *Lab) attach(h *Host) error {
	l.ports++
	port := fmt.Sprintf("port%d", l.ports)
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: port, MasterIndex: l.bridge.Attrs().Index})
	pair.PeerName, pair.PeerNamespace = "eth0", netlink.NsFd(h.space.Fd())
	if err := l.fabric.links.handle.LinkAdd(pair); err != nil {
		return fmt.Errorf("attach %s to the segment: %w", h.name, err)
	}
	if _, err := l.fabric.links.up(port); err != nil {
		return err
	}
	if _, err := h.links.up("eth0"); err != nil {
		return err
	}
	return errors.Join(h.links.ready("eth0"), l.fabric.links.ready(port), l.fabric.links.ready("br0", upstream6))
}

// Nodes returns the nodes in the order they were added.
func (l *Lab) Nodes() []*Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.nodes)
}

// connect routes between two machines on the segment, both ways. The caller holds l.mu.
func connect(a, b *machine) error {
	return errors.Join(a.routeTo(b), b.routeTo(a))
}

// machine is a host on the segment together with the prefixes behind it.
type machine struct {
	*Host
	behind []netip.Prefix
}

func (m *machine) routeTo(o *machine) error {
	eth0, err := m.links.handle.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", m.name, err)
	}
	for _, a := range o.addrs {
		if err := m.links.addRoute(eth0, netip.PrefixFrom(a, a.BitLen()), netip.Addr{}); err != nil {
			return err
		}
	}
	for _, p := range o.behind {
		via := o.Addr(p.Addr().Is6())
		if !via.IsValid() || !m.Addr(p.Addr().Is6()).IsValid() {
			continue // a family one of the two has not got
		}
		if err := m.links.addRoute(eth0, p, via); err != nil {
			return err
		}
	}
	return nil
}

// Close closes what the hosts have adopted (servers, streams, captures) and removes all namespaces, going on when a step
// fails; it returns all that failed. Further calls do nothing.
func (l *Lab) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	nodes, extern, fabric := l.nodes, l.extern, l.fabric
	l.mu.Unlock()

	var errs []error
	for _, e := range extern {
		errs = append(errs, e.sockets.close())
	}
	for _, n := range nodes {
		errs = append(errs, n.stopPods(), n.sockets.close())
	}
	// Names go last and from the inside out, so that nothing still running finds its peer missing.
	for _, n := range nodes {
		errs = append(errs, n.removePods(), n.remove())
	}
	for _, e := range extern {
		errs = append(errs, e.remove())
	}
	errs = append(errs, fabric.sockets.close(), fabric.remove())
	return errors.Join(errs...)
}

// RemoveLeftovers removes namespaces whose name begins with prefix ("mgy-" for all) and that a process which is gone
// has left, and returns their names. The namespaces of processes that run are not touched.
func RemoveLeftovers(prefix string) ([]string, error) { return ns.RemoveLeftovers(prefix) }
