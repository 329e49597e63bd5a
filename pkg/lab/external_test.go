package lab_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// A cluster of any addresses: nodes, pods and the outside host have those they are told to have.
func TestAddressesOfOnesOwnChoice(t *testing.T) {
	l := labtest.New(t)
	a := labtest.Must[*lab.Node](t)(l.AddNode("a", netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:192::1")))
	b := labtest.Must[*lab.Node](t)(l.AddNode("b", netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:192::2")))
	out := labtest.Must[*lab.External](t)(l.AddExternal("out"))
	pod := labtest.Pod(t, a, "pod", netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:10:1::1"))
	server := labtest.ListenTCP(t, pod.Host, 80)
	everywhere := func(route func(netip.Prefix, *lab.Node) error) {
		t.Helper()
		for _, addr := range pod.Addrs() {
			if err := route(netip.PrefixFrom(addr, addr.BitLen()), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	labtest.WantOutcome(t, "without a route", echo.DialTCP(b.Host, server.Addr4(), labtest.Never), echo.Timeout)
	everywhere(b.RouteVia)
	everywhere(out.RouteVia)
	for _, v6 := range []bool{false, true} {
		further := []netip.Addr{netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8:1::5")}[btoi(v6)]
		if err := out.AddAddr(further); err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(pod.Addr(v6), 80)
		labtest.WantOutcome(t, "from the other node", echo.DialTCPFrom(b.Host, netip.AddrPortFrom(b.Addr(v6), 0), to, labtest.Soon), echo.Connected)
		labtest.WantOutcome(t, "from a further address", echo.DialTCPFrom(out.Host, netip.AddrPortFrom(further, 4321), to, labtest.Soon), echo.Connected)
		labtest.WantOutcome(t, "ping from it", traffic.PingFrom(out.Host, further, pod.Addr(v6), labtest.Soon), echo.Connected)
		labtest.Must[*echo.Server](t)(echo.ListenUDPAt(out.Host, further, 53))
		answer := echo.ExchangeUDPFrom(pod.Host, netip.AddrPortFrom(pod.Addr(v6), 0), netip.AddrPortFrom(further, 53), []byte("x"), labtest.Soon)
		labtest.WantOutcome(t, "datagrams to it", answer, echo.Connected)
		if err := out.RemoveAddr(further); err != nil {
			t.Fatal(err)
		}
		labtest.WantOutcome(t, "to an address taken back", traffic.Ping(pod.Host, further, labtest.Never), echo.Timeout)
	}
	everywhere(b.UnrouteVia)
	everywhere(b.UnrouteVia) // again: no error
	labtest.WantOutcome(t, "without a route again", echo.DialTCP(b.Host, server.Addr4(), labtest.Never), echo.Timeout)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
