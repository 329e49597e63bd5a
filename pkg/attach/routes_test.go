package attach

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func hostRouteTo(t *testing.T, addr string, ifindex uint32, change func(*netlink.Route)) *netlink.Route {
	t.Helper()
	a := netip.MustParseAddr(addr)
	r := &netlink.Route{LinkIndex: int(ifindex), Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())},
		Scope: netlink.SCOPE_LINK}
	if a.Is6() {
		r.Scope = netlink.SCOPE_UNIVERSE
	}
	if change != nil {
		change(r)
	}
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitRoutes fails unless the watch comes to report this. What it reports before that is of no interest.
func awaitRoutes(t *testing.T, watch <-chan map[netip.Addr]string, want map[string]string) {
	t.Helper()
	wanted := map[netip.Addr]string{}
	for a, iface := range want {
		wanted[netip.MustParseAddr(a)] = iface
	}
	var got map[netip.Addr]string
	for deadline := time.After(time.Minute); ; {
		select {
		case got = <-watch:
			if maps.Equal(got, wanted) {
				return
			}
		case <-deadline:
			t.Fatalf("last report %v, want %v", got, wanted)
		}
	}
}

func TestRoutesOfSingleAddressesAreReported(t *testing.T) {
	ns, _ := room(t)
	one, two, other := veth(t, "calione"), veth(t, "calitwo"), veth(t, "ethother")
	for _, i := range []uint32{one, two, other} {
		setUp(t, i)
	}
	add := func(r *netlink.Route) { t.Helper(); must(t, netlink.RouteAdd(r)) }
	replace := func(r *netlink.Route) { t.Helper(); must(t, netlink.RouteReplace(r)) }
	remove := func(r *netlink.Route) { t.Helper(); must(t, netlink.RouteDel(r)) }
	add(hostRouteTo(t, "10.0.0.1", one, nil))
	add(hostRouteTo(t, "fd00::1", one, nil))
	watch, err := WatchRoutes(t.Context(), watchIn(ns), "cali")
	must(t, err)
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calione", "fd00::1": "calione"})

	add(hostRouteTo(t, "10.0.0.2", two, nil))
	add(hostRouteTo(t, "10.0.0.3", other, nil)) // no workload's
	add(&netlink.Route{LinkIndex: int(two), Dst: &net.IPNet{IP: net.IPv4(10, 1, 0, 0), Mask: net.CIDRMask(24, 32)}, Scope: netlink.SCOPE_LINK})
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calione", "fd00::1": "calione", "10.0.0.2": "calitwo"})

	replace(hostRouteTo(t, "10.0.0.1", two, nil))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.2": "calitwo"})

	// The one with the lower metric counts, until it goes.
	metric := func(n int) func(*netlink.Route) { return func(r *netlink.Route) { r.Priority = n } }
	add(hostRouteTo(t, "10.0.0.2", one, metric(5)))
	remove(hostRouteTo(t, "10.0.0.2", two, nil))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.2": "calione"})

	// A route elsewhere, or nowhere, hides it.
	add(hostRouteTo(t, "10.0.0.2", other, metric(4)))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione"})
	remove(hostRouteTo(t, "10.0.0.2", other, metric(4)))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.2": "calione"})
	blackhole := hostRouteTo(t, "10.0.0.2", 0, func(r *netlink.Route) { r.Type, r.Priority, r.Scope = unix.RTN_BLACKHOLE, 3, netlink.SCOPE_UNIVERSE })
	add(blackhole)
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione"})
	remove(blackhole)

	// So does an address of the node.
	addr, err := netlink.ParseAddr("10.0.0.2/32")
	must(t, err)
	link, err := netlink.LinkByIndex(int(other))
	must(t, err)
	must(t, netlink.AddrAdd(link, addr))
	add(hostRouteTo(t, "10.0.0.9", one, nil)) // the address may have come before the last report
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.9": "calione"})

	// Another table counts if a rule leads to it.
	inTable := func(r *netlink.Route) { r.Table = 77 }
	add(hostRouteTo(t, "10.0.0.4", one, inTable))
	rule := netlink.NewRule()
	rule.Table, rule.Priority = 77, 100
	must(t, netlink.RuleAdd(rule))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.9": "calione", "10.0.0.4": "calione"})
	must(t, netlink.RuleDel(rule))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo", "fd00::1": "calione", "10.0.0.9": "calione"})

	// The kernel does not say which IPv4 routes an interface takes with it.
	link, err = netlink.LinkByIndex(int(two))
	must(t, err)
	must(t, netlink.LinkSetDown(link))
	awaitRoutes(t, watch, map[string]string{"fd00::1": "calione", "10.0.0.9": "calione"})
	removeLink(t, one)
	awaitRoutes(t, watch, nil)
}

// An interface that gets its name when it has routes already is a workload's from then on.
func TestRoutesOfARenamedInterfaceAreReported(t *testing.T) {
	ns, _ := room(t)
	index := veth(t, "tmpone")
	setUp(t, index)
	must(t, netlink.RouteAdd(hostRouteTo(t, "10.0.0.1", index, nil)))
	watch, err := WatchRoutes(t.Context(), watchIn(ns), "cali")
	must(t, err)
	awaitRoutes(t, watch, nil)
	link, err := netlink.LinkByIndex(int(index))
	must(t, err)
	must(t, netlink.LinkSetName(link, "calione"))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calione"})
	must(t, netlink.LinkSetName(link, "calitwo"))
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calitwo"})
}

// What a route is replaced by, if it is the same, is no news.
func TestARouteThatIsReplacedByAnEqualOneIsNotReported(t *testing.T) {
	ns, _ := room(t)
	one := veth(t, "calione")
	setUp(t, one)
	route := hostRouteTo(t, "10.0.0.1", one, nil)
	must(t, netlink.RouteAdd(route))
	watch, err := WatchRoutes(t.Context(), watchIn(ns), "cali")
	must(t, err)
	awaitRoutes(t, watch, map[string]string{"10.0.0.1": "calione"})
	for range 20 {
		must(t, netlink.RouteReplace(route))
	}
	must(t, netlink.RouteAdd(hostRouteTo(t, "10.0.0.2", one, nil)))
	if got := await(t, watch); len(got) != 2 {
		t.Errorf("got %v, want the next change", got)
	}
}

// Notifications that are lost are made up for by reading everything.
func TestAWatchOfRoutesThatStartsOverReportsWhatItMissed(t *testing.T) {
	ns, _ := room(t)
	one := veth(t, "calione")
	setUp(t, one)
	w := newRouteWatch(watchIn(ns), "cali")
	var log bytes.Buffer
	w.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
	must(t, w.open())
	must(t, w.sub.socket.SetReceiveBufferSize(1, true))
	want := map[string]string{}
	for i := range 100 {
		addr := fmt.Sprintf("10.0.0.%d", i+1)
		must(t, netlink.RouteAdd(hostRouteTo(t, addr, one, nil)))
		want[addr] = "calione"
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keepUp(ctx, "routes", w, w.options.Logger)
		w.kernel.close()
	}()
	awaitRoutes(t, w.out, want)
	cancel()
	<-done
	if !bytes.Contains(log.Bytes(), []byte("no buffer space")) {
		t.Errorf("the subscription did not fail: %s", log.String())
	}
}

// A router's routes must not cost the watch of a node with few pods: notifications of them are dropped by the kernel.
func TestRoutesOfNetworksAreNotNotified(t *testing.T) {
	ns, _ := room(t)
	one, other := veth(t, "calione"), veth(t, "ethother")
	setUp(t, one)
	setUp(t, other)
	sub, err := subscribe(watchIn(ns), unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
	must(t, err)
	defer sub.close()
	must(t, onlyHostRoutes(sub.socket.GetFd()))
	for i := range 100 {
		must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: int(other), Scope: netlink.SCOPE_LINK,
			Dst: &net.IPNet{IP: net.IPv4(172, 16, byte(i), 0), Mask: net.CIDRMask(24, 32)}}))
	}
	must(t, netlink.RouteAdd(hostRouteTo(t, "10.0.0.1", one, nil)))
	for {
		for _, m := range await(t, sub.messages) {
			r, ok := parseHostRoute(m.Data)
			if !ok {
				t.Fatalf("notified of %x", m.Data)
			}
			if r.addr == netip.MustParseAddr("10.0.0.1") {
				return
			}
		}
	}
}
