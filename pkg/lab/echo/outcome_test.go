package echo_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

func TestOutcomesAreToldApart(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	unused := netip.MustParseAddrPort("203.0.113.1:80")
	for _, a := range serving.Addrs() {
		closed := netip.AddrPortFrom(a, 9)
		labtest.WantOutcome(t, "tcp to a closed port", echo.DialTCP(client.Host, closed, labtest.Soon), echo.Refused)
		labtest.WantOutcome(t, "udp to a closed port", echo.ExchangeUDP(client.Host, closed, []byte("x"), labtest.Soon), echo.Refused)
	}
	labtest.WantOutcome(t, "tcp to an unused address", echo.DialTCP(client.Host, unused, labtest.Never), echo.Timeout)
	labtest.WantOutcome(t, "udp to an unused address", echo.ExchangeUDP(client.Host, unused, []byte("x"), labtest.Never), echo.Timeout)

	var resetting net.Listener
	if err := serving.Do(func() (err error) {
		resetting, err = net.Listen("tcp", ":81")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer resetting.Close()
	go func() {
		if c, err := resetting.Accept(); err == nil {
			c.(*net.TCPConn).SetLinger(0) // close by reset
			c.Close()
		}
	}()
	got := echo.DialTCP(client.Host, netip.AddrPortFrom(serving.Addr4(), 81), labtest.Soon)
	if got.Outcome != echo.Reset || !got.Established {
		t.Errorf("tcp to a server that resets: %+v", got)
	}

	testutil.RequireCommand(t, "iptables")
	labtest.ListenTCP(t, serving.Host, 80)
	dst := netip.AddrPortFrom(serving.Addr4(), 80)
	rule := []string{"FORWARD", "-p", "tcp", "--dport", "80", "-j", "REJECT", "--reject-with", "icmp-admin-prohibited"}
	labtest.Must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-A"}, rule...)...))
	labtest.WantOutcome(t, "tcp, administratively prohibited", echo.DialTCP(client.Host, dst, labtest.Soon), echo.Unreachable)
	labtest.Must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-D"}, rule...)...))

	rule = []string{"FORWARD", "-p", "tcp", "--sport", "80", "--tcp-flags", "PSH", "PSH", "-j", "DROP"}
	labtest.Must[string](t)(n.Run(t.Context(), "", "iptables", append([]string{"-A"}, rule...)...))
	for within := labtest.Never; within < labtest.Soon; within *= 2 { // on a busy machine the handshake takes its time, too
		if got = echo.DialTCP(client.Host, dst, within); got.Established {
			break
		}
	}
	if got.Outcome != echo.Timeout || !got.Established {
		t.Errorf("handshake without banner: %+v", got)
	}
}
