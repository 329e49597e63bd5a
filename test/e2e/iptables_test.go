package e2e

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// forBackends runs a test with agents whose dataplane is iptables, with each backend.
func forBackends(t *testing.T, test func(t *testing.T, flags ...string)) {
	for _, backend := range []string{"legacy", "nft"} {
		t.Run(backend, func(t *testing.T) {
			testutil.RequireCommand(t, "iptables-"+backend+"-restore")
			test(t, "--dataplane", "iptables", "--iptables-backend", backend)
		})
	}
}

// A connection that policy ends is reset at both ends when one of them sends: the other need not send to learn of it.
func TestIPTablesResetsBothEndsOfARevokedConnection(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		db, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "bad")
		client, server := connect(t, bad, db)
		c.Policy("db", onlyGood)
		c.AwaitPolicies(db, 1, 0)
		if _, err := server.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		for end, conn := range map[string]net.Conn{"which sends": server, "which does not send": client} {
			if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("the end %s has %v", end, err)
			}
		}
	})
}

// connect opens a connection to a pod, and sends a byte in each direction. Both ends are closed when the test ends.
func connect(t *testing.T, from, to *lab.Pod) (client, server net.Conn) {
	t.Helper()
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(to.Addr4(), 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := traffic.OpenTCP(from.Host, netip.MustParseAddrPort(listener.Addr().String()), soon)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	say(t, client, server)
	say(t, server, client)
	return client, server
}

func say(t *testing.T, from, to net.Conn) {
	t.Helper()
	if _, err := from.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}
