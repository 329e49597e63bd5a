package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// connect makes the veth pair and the routes on both sides.
func connect(inside netns.NsHandle, eth0, iface string, addrs []netip.Addr) error {
	pair := netlink.NewVeth(netlink.LinkAttrs{Name: iface, HardwareAddr: lab.HostMAC})
	pair.PeerName, pair.PeerNamespace = eth0, netlink.NsFd(inside)
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("add the veth pair %s: %w", iface, err)
	}
	for name, value := range map[string]string{"conf/" + iface + "/proxy_arp": "1", "neigh/" + iface + "/proxy_delay": "0"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("set %s to %s: %w", name, value, err)
		}
	}
	pod, err := netlink.NewHandleAt(inside, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink in the pod: %w", err)
	}
	defer pod.Close()
	link, err := up(pod, eth0)
	if err != nil {
		return err
	}
	host, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer host.Close()
	outside, err := up(host, iface)
	if err != nil {
		return err
	}
	if err := address(host, outside, netip.PrefixFrom(gateway6, 64)); err != nil {
		return err
	}
	for _, a := range addrs {
		if err := errors.Join(address(pod, link, netip.PrefixFrom(a, a.BitLen())), gateway(pod, link, a.Is6()),
			route(host, outside, netip.PrefixFrom(a, a.BitLen()), netip.Addr{})); err != nil {
			return err
		}
	}
	return nil
}

// gateway routes everything to the node.
func gateway(pod *netlink.Handle, link netlink.Link, v6 bool) error {
	if v6 {
		return route(pod, link, netip.PrefixFrom(netip.IPv6Unspecified(), 0), gateway6)
	}
	return errors.Join(route(pod, link, netip.PrefixFrom(gateway4, 32), netip.Addr{}),
		route(pod, link, netip.PrefixFrom(netip.IPv4Unspecified(), 0), gateway4))
}

func up(h *netlink.Handle, name string) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return nil, fmt.Errorf("set %s up: %w", name, err)
	}
	return link, nil
}

func address(h *netlink.Handle, link netlink.Link, p netip.Prefix) error {
	if err := h.AddrReplace(link, &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}); err != nil {
		return fmt.Errorf("add %s to %s: %w", p, link.Attrs().Name, err)
	}
	return nil
}

func route(h *netlink.Handle, link netlink.Link, dst netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(dst), Scope: netlink.SCOPE_LINK}
	if via.IsValid() {
		r.Gw, r.Flags = via.AsSlice(), int(netlink.FLAG_ONLINK)
	}
	if via.IsValid() || dst.Addr().Is6() {
		r.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := h.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s by %s: %w", dst, link.Attrs().Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
