package attach

import (
	"net"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestUplinksAreTheInterfacesOfDefaultRoutes(t *testing.T) {
	ns, _ := room(t)
	want := func(when string, names ...string) {
		t.Helper()
		got, err := Uplinks(watchIn(ns))
		must(t, err)
		if !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q", when, got, names)
		}
	}
	want("no interface")
	links := map[string]int{}
	for _, name := range []string{"eth0", "eth1", "eth2", "eth3", "eth4"} {
		i := veth(t, name)
		setUp(t, i)
		setUp(t, peerOf(t, name))
		links[name] = int(i)
	}
	everything4 := &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	everything6 := &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	add := func(r *netlink.Route) {
		t.Helper()
		must(t, netlink.RouteAdd(r))
	}
	add(&netlink.Route{LinkIndex: links["eth0"], Dst: &net.IPNet{IP: net.IP{192, 0, 2, 0}, Mask: net.CIDRMask(24, 32)}, Scope: netlink.SCOPE_LINK})
	add(&netlink.Route{LinkIndex: links["eth0"], Dst: everything4, Scope: netlink.SCOPE_LINK, Table: 77})
	add(&netlink.Route{Dst: everything6, Type: unix.RTN_BLACKHOLE, Priority: 9})
	add(&netlink.Route{LinkIndex: links["eth0"], Dst: everything6, Protocol: unix.RTPROT_RA, Priority: 7})
	want("routes of a network, of another table, nowhere, and of a router advertisement")
	add(&netlink.Route{LinkIndex: links["eth1"], Dst: everything4, Scope: netlink.SCOPE_LINK})
	want("a default route", "eth1")
	add(&netlink.Route{LinkIndex: links["eth2"], Dst: everything6})
	want("one of each family", "eth1", "eth2")
	add(&netlink.Route{Dst: everything4, Priority: 5, MultiPath: []*netlink.NexthopInfo{{LinkIndex: links["eth3"]}, {LinkIndex: links["eth4"]}}})
	want("one of several ways", "eth1", "eth2", "eth3", "eth4")
}

// A loopback interface may be renamed.
func TestLoopbacksAreFoundByTheirFlag(t *testing.T) {
	ns, _ := room(t)
	veth(t, "lo0")
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetName(lo, "calimero"))
	got, err := Loopbacks(watchIn(ns))
	must(t, err)
	if !slices.Equal(got, []string{"calimero"}) {
		t.Errorf("loopback interfaces: %q", got)
	}
}

func peerOf(t *testing.T, name string) uint32 {
	t.Helper()
	l, err := netlink.LinkByName("peer-" + name)
	must(t, err)
	return uint32(l.Attrs().Index)
}
