package lab_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/lab/ns"
)

const (
	soon  = 20 * time.Second       // for what must come
	first = 900 * time.Millisecond // for what must come without being sent again
	never = 150 * time.Millisecond // for what must not
)

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newLab makes a lab that is closed, and found to have left nothing, when the test ends.
func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	testutil.Privileged(t)
	l := must[*lab.Lab](t)(lab.New())
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		for _, name := range must[[]string](t)(ns.List()) {
			if strings.HasPrefix(name, "mgy-"+l.ID()+"-") {
				t.Errorf("%s is left", name)
			}
		}
	})
	return l
}

func addNode(t *testing.T, l *lab.Lab, name string) *lab.Node {
	t.Helper()
	return must[*lab.Node](t)(l.AddNode(name))
}

func addPod(t *testing.T, n *lab.Node, name string, addrs ...netip.Addr) *lab.Pod {
	t.Helper()
	return must[*lab.Pod](t)(n.AddPod("shop", name, addrs...))
}

func listenTCP(t *testing.T, h *lab.Host, port uint16) *echo.Server {
	t.Helper()
	return must[*echo.Server](t)(echo.ListenTCP(h, port))
}

func listenUDP(t *testing.T, h *lab.Host, port uint16) *echo.Server {
	t.Helper()
	return must[*echo.Server](t)(echo.ListenUDP(h, port))
}

func wantOutcome(t *testing.T, what string, got echo.Attempt, want echo.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("%s: %v (%v), want %v", what, got.Outcome, got.Err, want)
	}
}

// Every pair of pods on one and two nodes, nodes and an outside host reach one another over both families.
func TestAllReachAll(t *testing.T) {
	l := newLab(t)
	a, b := addNode(t, l, "a"), addNode(t, l, "b")
	out := must[*lab.External](t)(l.AddExternal("out"))
	hosts := []*lab.Host{
		addPod(t, a, "web").Host, addPod(t, a, "db").Host, addPod(t, b, "cache").Host, a.Host, b.Host, out.Host,
	}
	for _, to := range hosts {
		tcp, udp := listenTCP(t, to, 80), listenUDP(t, to, 53)
		for _, from := range hosts {
			for _, v6 := range []bool{false, true} {
				dst := to.Addr(v6)
				what := fmt.Sprintf("%s to %s %v", from.Name(), to.Name(), dst)
				got := echo.DialTCP(from, netip.AddrPortFrom(dst, 80), soon)
				wantOutcome(t, what+" tcp", got, echo.Connected)
				if got.Server != tcp.Name() {
					t.Errorf("%s: answered by %q, want %q", what, got.Server, tcp.Name())
				}
				got = echo.ExchangeUDP(from, netip.AddrPortFrom(dst, 53), []byte("hello"), soon)
				wantOutcome(t, what+" udp", got, echo.Connected)
				if got.Server != udp.Name() {
					t.Errorf("%s: answered by %q, want %q", what, got.Server, udp.Name())
				}
				wantOutcome(t, what+" ping", traffic.Ping(from, dst, soon), echo.Connected)
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
