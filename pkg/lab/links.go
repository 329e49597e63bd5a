package lab

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// links are the interfaces of a host with their addresses and routes.
type links struct {
	host   string
	space  *ns.NS
	handle *netlink.Handle
}

func openLinks(host string, space *ns.NS) (*links, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(space.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", space.Name(), err)
	}
	return &links{host: host, space: space, handle: handle}, nil
}

// up sets an interface up and returns it.
func (l *links) up(iface string) (netlink.Link, error) {
	link, err := l.handle.LinkByName(iface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s of %s: %w", iface, l.host, err)
	}
	if err := l.handle.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set interface %s of %s up: %w", iface, l.host, err)
	}
	return link, nil
}

func (l *links) addAddr(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
	if err := l.handle.AddrReplace(link, a); err != nil {
		return fmt.Errorf("add address %s to %s of %s: %w", p, link.Attrs().Name, l.host, err)
	}
	return nil
}

// addRoute routes dst out of the link, by way of a gateway that is on that link if via is valid.
func (l *links) addRoute(link netlink.Link, dst netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(dst), Scope: netlink.SCOPE_LINK}
	if via.IsValid() {
		r.Gw, r.Flags, r.Scope = via.AsSlice(), int(netlink.FLAG_ONLINK), netlink.SCOPE_UNIVERSE
	}
	if dst.Addr().Is6() {
		r.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := l.handle.RouteAdd(r); err != nil {
		return fmt.Errorf("route %s via %s in %s: %w", dst, link.Attrs().Name, l.host, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
