package attach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/further"
)

// Routes out of the interfaces, and those inside of them, are read from the kernel; others are not.
func TestRoutesOutOfInterfacesAreRead(t *testing.T) {
	ns, _ := room(t)
	one, two, other := veth(t, "calione"), veth(t, "calitwo"), veth(t, "ethother")
	for _, i := range []uint32{one, two, other} {
		setUp(t, i)
	}
	add := func(prefix string, ifindex uint32, change func(*netlink.Route)) {
		t.Helper()
		p := netip.MustParsePrefix(prefix)
		r := &netlink.Route{LinkIndex: int(ifindex), Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is4() {
			r.Scope = netlink.SCOPE_LINK
		}
		if change != nil {
			change(r)
		}
		must(t, netlink.RouteAdd(r))
	}
	add("203.0.113.0/24", one, nil)
	add("203.0.113.128/25", two, nil)
	add("203.0.113.200/32", other, nil)
	add("203.0.113.0/24", other, func(r *netlink.Route) { r.Priority = 9 })
	add("192.0.2.7/32", one, func(r *netlink.Route) { r.Priority = 9 })
	add("192.0.2.7/32", other, nil)
	add("203.0.113.240/28", 0, func(r *netlink.Route) { r.Type, r.Scope = unix.RTN_BLACKHOLE, netlink.SCOPE_UNIVERSE })
	add("198.51.100.0/24", other, nil)
	add("192.0.2.0/24", one, func(r *netlink.Route) { r.Table = 77 })
	add("2001:db8:1::/48", one, nil)
	add("0.0.0.0/0", two, nil)
	read := func(names ...string) string {
		t.Helper()
		want := map[string]bool{}
		for _, n := range names {
			want[n] = true
		}
		list, err := RoutesOut(watchIn(ns), want)
		must(t, err)
		var texts []string
		for _, r := range list {
			if !r.Prefix.Addr().IsLinkLocalUnicast() && !r.Prefix.Addr().IsMulticast() {
				texts = append(texts, fmt.Sprintf("%s %s", r.Prefix, r.Interface))
			}
		}
		slices.Sort(texts)
		return strings.Join(texts, ", ")
	}
	if got, want := read("calione", "caligone"), "192.0.2.7/32 , 192.0.2.7/32 calione, 2001:db8:1::/48 calione, 203.0.113.0/24 , 203.0.113.0/24 calione, 203.0.113.128/25 , 203.0.113.200/32 , 203.0.113.240/28 "; got != want {
		t.Errorf("one interface:\n%s, want\n%s", got, want)
	}
	list, err := RoutesOut(watchIn(ns), map[string]bool{"calione": true})
	must(t, err)
	for prefix, iface := range map[string]string{"203.0.113.0/24": "calione", "192.0.2.7/32": ""} {
		first := slices.IndexFunc(list, func(r further.Route) bool { return r.Prefix == netip.MustParsePrefix(prefix) })
		if first < 0 || list[first].Interface != iface {
			t.Errorf("the route to %s with the lower metric is not the first: %v", prefix, list)
		}
	}
	if got := read("calitwo"); !strings.Contains(got, "0.0.0.0/0 calitwo") || !strings.Contains(got, "198.51.100.0/24 ,") || strings.Contains(got, "192.0.2.0") {
		t.Errorf("a default route:\n%s", got)
	}
	if got := read("caligone"); got != "" {
		t.Errorf("an interface that is not there: %s", got)
	}
}
