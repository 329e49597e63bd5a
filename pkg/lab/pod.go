package lab

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// HostMAC is the hardware address of the host side of every pod's veth pair, as Calico sets it.
var HostMAC = net.HardwareAddr{0xee, 0xee, 0xee, 0xee, 0xee, 0xee}

var (
	gateway4 = netip.AddrFrom4([4]byte{169, 254, 1, 1})
	gateway6 = netip.MustParseAddr("fe80::ecee:eeff:feee:eeee") // what HostMAC makes
	default4 = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	default6 = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
)

// Pod is a namespace behind a veth pair: eth0 inside, Iface on the node. Its default route is 169.254.1.1, which the
// node answers for by proxy ARP, and for IPv6 the link-local address of the node's side.
type Pod struct {
	*Host
	node  *Node
	iface string
	index int
	mac   net.HardwareAddr
}

// IfaceName is the host-side interface of a pod: cali and the first 11 hexadecimal digits of sha1("namespace.name").
func IfaceName(namespace, name string) string {
	sum := sha1.Sum([]byte(namespace + "." + name))
	return "cali" + hex.EncodeToString(sum[:])[:11]
}

// AddPod makes a pod with the given addresses, of any prefix, or with the node's next IPv4 and IPv6 address if none are
// given. A pod, or an address, that is on the node already is an error; on error nothing is left. Addresses of another
// node's prefix are reachable from this node only.
func (n *Node) AddPod(namespace, name string, addrs ...netip.Addr) (*Pod, error) {
	return n.addPod(namespace, name, 0, addrs)
}

// ReplacePod deletes a pod and adds another one, as DelPod and AddPod do. The number of its interface is that of the pod which has gone:
// CNI plugins that make interfaces in the pod's network namespace have the numbers used again.
func (n *Node) ReplacePod(gone *Pod, namespace, name string, addrs ...netip.Addr) (*Pod, error) {
	if err := n.DelPod(gone); err != nil {
		return nil, err
	}
	return n.addPod(namespace, name, gone.index, addrs)
}

// AddNumberedPod adds a pod as AddPod does, with a certain number of its interface on the node. One that is in use is an error.
func (n *Node) AddNumberedPod(namespace, name string, index int, addrs ...netip.Addr) (*Pod, error) {
	return n.addPod(namespace, name, index, addrs)
}

// addPod adds a pod. index 0: the kernel chooses the number of its interface.
func (n *Node) addPod(namespace, name string, index int, addrs []netip.Addr) (*Pod, error) {
	n.plugging.RLock()
	defer n.plugging.RUnlock()
	key := namespace + "/" + name
	addrs, err := n.reserve(key, addrs)
	if err != nil {
		return nil, fmt.Errorf("add pod %s on %s: %w", key, n.name, err)
	}
	p, err := n.plug(namespace, name, index, addrs)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		delete(n.pods, key)
		return nil, err
	}
	n.pods[key] = p
	return p, nil
}

// reserve keeps the name for a pod that is about to be made, and picks its addresses if it has none.
func (n *Node) reserve(key string, addrs []netip.Addr) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, exists := n.pods[key]; exists {
		return nil, errors.New("it exists")
	}
	if len(addrs) == 0 {
		if n.next == 255 {
			return nil, errors.New("no address left")
		}
		for _, p := range n.behind {
			b := p.Addr().AsSlice()
			b[len(b)-1] = n.next
			a, _ := netip.AddrFromSlice(b) // of 4 or 16 bytes
			addrs = append(addrs, a)
		}
		n.next++
	}
	n.pods[key] = nil
	return addrs, nil
}

// plug makes the pod. On error nothing is left.
func (n *Node) plug(namespace, name string, index int, addrs []netip.Addr) (*Pod, error) {
	key := namespace + "/" + name
	space, err := n.lab.podSpace()
	if err != nil {
		return nil, fmt.Errorf("add pod %s on %s: %w", key, n.name, err)
	}
	host, err := newHost(key, space, addrs)
	if err != nil {
		return nil, err
	}
	p := &Pod{Host: host, node: n, iface: IfaceName(namespace, name), index: index}
	if err := p.connect(); err != nil {
		return nil, errors.Join(err, p.sockets.close(), p.unplug(), p.remove())
	}
	return p, nil
}

func (l *Lab) podSpace() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return "", errors.New("the lab is closed")
	}
	l.pods++
	return l.spaceName(fmt.Sprint(l.pods)), nil
}

// connect makes the veth pair and the routes on both sides.
func (p *Pod) connect() error {
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: p.iface, Index: p.index, HardwareAddr: HostMAC})
	pair.PeerName, pair.PeerNamespace = "eth0", netlink.NsFd(p.space.Fd())
	if err := p.node.links.handle.LinkAdd(pair); err != nil {
		return fmt.Errorf("add veth pair %s of pod %s: %w", p.iface, p.name, err)
	}
	if err := p.node.sysctl(
		"net/ipv4/conf/"+p.iface+"/proxy_arp=1",
		"net/ipv4/neigh/"+p.iface+"/proxy_delay=0",
		"net/ipv6/conf/"+p.iface+"/proxy_ndp=1",
		"net/ipv6/neigh/"+p.iface+"/proxy_delay=0",
	); err != nil {
		return err
	}
	if err := p.connectInside(); err != nil {
		return err
	}
	outside, err := p.node.links.up(p.iface)
	if err != nil {
		return err
	}
	p.index = outside.Attrs().Index
	if err := p.node.links.addAddr(outside, netip.PrefixFrom(gateway6, 64)); err != nil {
		return err
	}
	for _, a := range p.addrs {
		if err := p.node.links.addRoute(outside, netip.PrefixFrom(a, a.BitLen()), netip.Addr{}); err != nil {
			return err
		}
	}
	if err := p.links.ready("eth0", p.addrs...); err != nil {
		return err
	}
	return p.node.links.ready(p.iface, gateway6)
}

func (p *Pod) connectInside() error {
	eth0, err := p.links.up("eth0")
	if err != nil {
		return err
	}
	p.mac = eth0.Attrs().HardwareAddr
	for _, a := range p.addrs {
		if err := p.links.addAddr(eth0, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	if p.Addr4().IsValid() {
		if err := p.links.addRoute(eth0, netip.PrefixFrom(gateway4, 32), netip.Addr{}); err != nil {
			return err
		}
		if err := p.links.addRoute(eth0, default4, gateway4); err != nil {
			return err
		}
	}
	if p.Addr6().IsValid() {
		return p.links.addRoute(eth0, default6, gateway6)
	}
	return nil
}

// DelPod closes the pod's sockets and removes its veth pair, routes and namespace. It continues when a step fails. The
// name and addresses may be used again at once.
func (n *Node) DelPod(p *Pod) error {
	n.plugging.RLock()
	defer n.plugging.RUnlock()
	n.mu.Lock()
	mine := n.pods[p.name] == p
	if mine {
		n.pods[p.name] = nil
	}
	n.mu.Unlock()
	if !mine {
		return fmt.Errorf("delete pod %s on %s: no such pod", p.name, n.name)
	}
	err := errors.Join(p.sockets.close(), p.unplug(), p.remove())
	n.mu.Lock()
	delete(n.pods, p.name)
	n.mu.Unlock()
	return err
}

// unplug deletes the veth pair, if there is one; both ends are gone when it returns.
func (p *Pod) unplug() error {
	if err := p.node.unplugs.remove(p.node.Host, p.iface); err != nil {
		return fmt.Errorf("delete veth pair %s of pod %s: %w", p.iface, p.name, err)
	}
	return nil
}

// SetMTU changes the MTU of both ends of its veth pair; it is 1500 at first.
func (p *Pod) SetMTU(mtu int) error {
	for _, end := range []struct {
		host  *Host
		iface string
	}{{p.Host, "eth0"}, {p.node.Host, p.iface}} {
		link, err := end.host.links.handle.LinkByName(end.iface)
		if err == nil {
			err = end.host.links.handle.LinkSetMTU(link, mtu)
		}
		if err != nil {
			return fmt.Errorf("set MTU %d on %s of %s: %w", mtu, end.iface, end.host.name, err)
		}
	}
	return nil
}

// Node is the node it runs on.
func (p *Pod) Node() *Node { return p.node }

// Iface is the name of its interface on the node.
func (p *Pod) Iface() string { return p.iface }

// IfIndex is the index of that interface in the node's namespace.
func (p *Pod) IfIndex() int { return p.index }

// MAC is the hardware address of its eth0.
func (p *Pod) MAC() net.HardwareAddr { return p.mac }
