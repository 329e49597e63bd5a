package lab_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

var vips = []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd96::10")}

func at(h *lab.Host, vip netip.Addr, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(h.Addr(vip.Is6()), port)
}

func setService(t *testing.T, n *lab.Node, s lab.Service) {
	t.Helper()
	if err := n.SetService(s); err != nil {
		t.Fatal(err)
	}
}

func TestServiceReachesItsBackendsFromEverywhere(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	l := labtest.New(t)
	n, other := labtest.Node(t, l, "a"), labtest.Node(t, l, "b")
	out := labtest.Must[*lab.External](t)(l.AddExternal("out"))
	client, near, far := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "near"), labtest.Pod(t, other, "far")
	tcp := []*echo.Server{labtest.ListenTCP(t, near.Host, 8080), labtest.ListenTCP(t, far.Host, 8080)}
	labtest.ListenUDP(t, near.Host, 5353)
	for _, vip := range vips {
		addr := netip.AddrPortFrom(vip, 80)
		setService(t, n, lab.Service{Addr: addr, Protocol: "tcp", Backends: []netip.AddrPort{at(near.Host, vip, 8080), at(far.Host, vip, 8080)}})
		setService(t, n, lab.Service{Addr: addr, Protocol: "udp", Backends: []netip.AddrPort{at(near.Host, vip, 5353)}})
		if err := out.RouteVia(netip.PrefixFrom(vip, vip.BitLen()), n); err != nil {
			t.Fatal(err)
		}
		for _, from := range []*lab.Host{client.Host, n.Host, out.Host} {
			answered := map[string]bool{}
			for range 40 { // misses one of the two once in 10^12 runs
				got := echo.DialTCP(from, addr, labtest.Soon)
				labtest.WantOutcome(t, from.Name()+" to the service over tcp", got, echo.Connected)
				answered[got.Server] = true
			}
			if d := cmp.Diff(map[string]bool{tcp[0].Name(): true, tcp[1].Name(): true}, answered); d != "" {
				t.Errorf("backends that answered %s at %s: %s", from.Name(), vip, d)
			}
			got := echo.ExchangeUDP(from, addr, []byte("x"), labtest.Soon)
			labtest.WantOutcome(t, from.Name()+" to the service over udp", got, echo.Connected)
		}
	}
}

func TestServiceHairpin(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	n := labtest.Node(t, labtest.New(t), "a")
	p := labtest.Pod(t, n, "self")
	server := labtest.ListenTCP(t, p.Host, 8080)
	for _, vip := range vips {
		addr := netip.AddrPortFrom(vip, 80)
		setService(t, n, lab.Service{Addr: addr, Protocol: "tcp", Backends: []netip.AddrPort{at(p.Host, vip, 8080)}})
		got := echo.DialTCP(p.Host, addr, labtest.Soon)
		labtest.WantOutcome(t, "pod to itself through "+vip.String(), got, echo.Connected)
		if got.Server != server.Name() {
			t.Errorf("answered by %q, want %q", got.Server, server.Name())
		}
	}
}

func TestServiceChangesAndGoes(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	n := labtest.Node(t, labtest.New(t), "a")
	client, one, two := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "one"), labtest.Pod(t, n, "two")
	labtest.ListenTCP(t, one.Host, 8080)
	second := labtest.ListenTCP(t, two.Host, 8080)
	vip := vips[0]
	s := lab.Service{Addr: netip.AddrPortFrom(vip, 80), Protocol: "tcp", Backends: []netip.AddrPort{at(one.Host, vip, 8080)}}
	setService(t, n, s)
	s.Backends = []netip.AddrPort{at(two.Host, vip, 8080)}
	setService(t, n, s)
	for range 10 {
		if got := echo.DialTCP(client.Host, s.Addr, labtest.Soon); got.Server != second.Name() {
			t.Fatalf("answered by %q, %v, want %q", got.Server, got.Err, second.Name())
		}
	}
	if err := n.DeleteService(s.Addr, s.Protocol); err != nil {
		t.Fatal(err)
	}
	labtest.WantOutcome(t, "to a deleted service", echo.DialTCP(client.Host, s.Addr, labtest.Never), echo.Timeout)
	rules := labtest.Must[string](t)(n.Run(context.Background(), "", "iptables-save", "-t", "nat"))
	for _, line := range strings.Split(rules, "\n") {
		if strings.Contains(line, "10.96.0.10") || strings.HasPrefix(line, ":LAB-") && !strings.HasPrefix(line, ":LAB-SERVICES ") && !strings.HasPrefix(line, ":LAB-MASQUERADE ") {
			t.Errorf("left after the service: %s", line)
		}
	}
	if err := n.SetService(lab.Service{Addr: s.Addr, Protocol: "tcp", Backends: []netip.AddrPort{at(one.Host, vips[1], 1)}}); err == nil {
		t.Error("a backend of the other family was accepted")
	}
}
