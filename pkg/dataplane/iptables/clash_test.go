package iptables

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// A client that uses one source port for a Service and for its backend gets another port for one of the connections by conntrack, which
// then has the state SNAT although the address is the client's own. The connection is judged by that address, also when it is judged again.
func TestAConnectionWithAnotherSourcePortKeepsItsAddress(t *testing.T) {
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(backend), func(t *testing.T) {
			n := newRealNode(t, backend)
			vip, direct := netip.MustParseAddrPort("10.96.0.10:82"), netip.AddrPortFrom(n.server.Addr4(), portFriends)
			if err := n.SetService(lab.Service{Addr: vip, Protocol: "tcp", Backends: []netip.AddrPort{direct}}); err != nil {
				t.Fatal(err)
			}
			n.start()
			n.rounds = 1 // the client is a friend
			n.graph.Apply(n.desired())
			n.apply(-1)
			server, err := echo.ListenTCP(n.server.Host, portFriends)
			if err != nil {
				t.Fatal(err)
			}
			const port = 44444
			connections := map[string]net.Conn{"by the Service": n.dialFrom(port, vip), "to the backend": n.dialFrom(port, direct)}
			for name, c := range connections {
				if err := expect(c, "", server.Name()+"\n"); err != nil {
					t.Errorf("%s: no greeting: %v", name, err)
				}
			}
			if n.withAnotherPort() == 0 {
				t.Fatal("conntrack has replaced no port: the test tests nothing")
			}
			before := n.agent.state.static.generation.number
			n.rounds += 2 // the client is a friend still
			n.graph.Apply(n.desired())
			n.apply(-1)
			if n.agent.state.static.generation.number == before {
				t.Fatal("no flow is judged again: the test tests nothing")
			}
			for name, c := range connections {
				if err := expect(c, "still here", "still here"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			n.rounds++ // and now it is not
			n.graph.Apply(n.desired())
			n.apply(-1)
			for name, c := range connections {
				if err := expect(c, "too long", "too long"); err == nil {
					t.Errorf("%s: it lives on although policy denies it now", name)
				}
			}
		})
	}
}

// dialFrom connects the client by a source port that it may use several times.
func (n *realNode) dialFrom(port int, to netip.AddrPort) (c net.Conn) {
	n.t.Helper()
	d := net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: n.client.Addr4().AsSlice(), Port: port}}
	d.Control = func(_, _ string, raw syscall.RawConn) error {
		var refused error
		err := raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
		return errors.Join(err, refused)
	}
	if err := n.client.Do(func() (err error) { c, err = d.Dial("tcp", to.String()); return err }); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// withAnotherPort is the number of connections whose state is SNAT although answers go to the opener's own address.
func (n *realNode) withAnotherPort() (number int) {
	n.t.Helper()
	n.do(func() error {
		table, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer func() { _ = table.Close() }()
		return table.Dump(conntrack.IPv4, conntrack.Filter{}, func(e conntrack.Entry) {
			if e.Status&conntrack.SrcNAT != 0 && e.Original.Src == e.Reply.Dst {
				number++
			}
		})
	})
	return number
}
