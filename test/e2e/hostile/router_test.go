package hostile

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// A node that listens to routers on its interfaces believes no pod that says it is one, though no policy restricts the pod
// (CVE-2020-13597: the node would send its traffic through the pod). The kernel believes link-local sources alone (RFC 4861, 6.1.2).
func TestANodeBelievesNoRouterThatIsAPod(t *testing.T) {
	s := newScene(t)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	sysctl(t, s.n1.Host, "ipv6/conf/"+s.m.Iface()+"/accept_ra", "2")
	sysctl(t, s.a.Host, "ipv6/conf/eth0/accept_ra", "2")

	host := netip.MustParseAddr("fe80::ecee:eeff:feee:eeee") // of lab.HostMAC
	believed := advertisement(netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1"))
	believed.SrcMAC, believed.DstMAC = lab.HostMAC, s.a.MAC()
	if err := traffic.SendFrame(s.n1.Host, s.a.Iface(), believed.Bytes()); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, soon, "a pod that listens to routers to believe one", func() bool { return hasRouter(t, s.a.Host, "eth0") })

	at := s.watchLocal(s.n1)
	var attacks []attack
	for _, dst := range []netip.Addr{netip.MustParseAddr("ff02::1"), host, s.n1.Addr6()} {
		for _, src := range []netip.Addr{linkLocal(s.m), netip.MustParseAddr("fe80::bad"), host} {
			frames := advertising(s.m, advertisement(src, dst))
			attacks = append(attacks, attack{what: "a router advertisement from " + src.String() + " to " + dst.String(), from: s.m, frames: frames})
		}
		send(t, s.m, frame(s.m, advertisement(s.m.Addr6(), dst)))
	}
	s.play(t, attacks, at)
	if hasRouter(t, s.n1.Host, s.m.Iface()) {
		t.Error("the node has a route through the pod")
	}
}

// advertisement is a router's, which offers itself for half an hour.
func advertisement(src, dst netip.Addr) testutil.Packet {
	return testutil.Packet{Src: src, Dst: dst, TTL: 255, L4: testutil.ICMP{Type: 134, Rest: 64<<24 | 1800}, Payload: make([]byte, 8)}
}

// advertising is bearing for advertisements: the token is in an option that no kernel knows.
func advertising(from *lab.Pod, p testutil.Packet) func(token) [][]byte {
	return func(k token) [][]byte {
		p := p
		option := make([]byte, 24)
		copy(option, append([]byte{253, 3}, k.bytes()...))
		p.Payload = append(make([]byte, 8), option...)
		return [][]byte{frame(from, p)}
	}
}

// hasRouter reports whether the host has a route over a router on the interface.
func hasRouter(t *testing.T, h *lab.Host, name string) bool {
	t.Helper()
	link, err := h.Netlink().LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	on := &netlink.Route{LinkIndex: link.Attrs().Index}
	routes, err := h.Netlink().RouteListFiltered(netlink.FAMILY_V6, on, netlink.RT_FILTER_OIF)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Gw != nil && r.Protocol == 9 { // RTPROT_RA
			return true
		}
	}
	return false
}
