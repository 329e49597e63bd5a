package lab_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Every pair of pods on one and two nodes, nodes and an outside host reach one another over both families.
func TestAllReachAll(t *testing.T) {
	l := labtest.New(t)
	a, b := labtest.Node(t, l, "a"), labtest.Node(t, l, "b")
	out := labtest.Must[*lab.External](t)(l.AddExternal("out"))
	hosts := []*lab.Host{
		labtest.Pod(t, a, "web").Host, labtest.Pod(t, a, "db").Host, labtest.Pod(t, b, "cache").Host, a.Host, b.Host, out.Host,
	}
	for _, to := range hosts {
		tcp, udp := labtest.ListenTCP(t, to, 80), labtest.ListenUDP(t, to, 53)
		for _, from := range hosts {
			for _, v6 := range []bool{false, true} {
				dst := to.Addr(v6)
				what := fmt.Sprintf("%s to %s %v", from.Name(), to.Name(), dst)
				got := echo.DialTCP(from, netip.AddrPortFrom(dst, 80), labtest.Soon)
				labtest.WantOutcome(t, what+" tcp", got, echo.Connected)
				if got.Server != tcp.Name() {
					t.Errorf("%s: answered by %q, want %q", what, got.Server, tcp.Name())
				}
				got = echo.ExchangeUDP(from, netip.AddrPortFrom(dst, 53), []byte("hello"), labtest.Soon)
				labtest.WantOutcome(t, what+" udp", got, echo.Connected)
				if got.Server != udp.Name() {
					t.Errorf("%s: answered by %q, want %q", what, got.Server, udp.Name())
				}
				labtest.WantOutcome(t, what+" ping", traffic.Ping(from, dst, labtest.Soon), echo.Connected)
			}
		}
		if got, want := tcp.Accepted(), uint64(2*len(hosts)); got != want {
			t.Errorf("%s accepted %d connections, want %d", to.Name(), got, want)
		}
		if got, want := udp.Received(), uint64(2*len(hosts)); got != want {
			t.Errorf("%s received %d datagrams, want %d", to.Name(), got, want)
		}
	}
}
