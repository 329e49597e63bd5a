package tcpreset_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/tcpreset"
)

const revoked = 0x80000000

// rules copy and reset the packets of revoked connections, as the chains of the iptables dataplane do.
const rules = `*mangle
-A FORWARD -p tcp -m connmark --mark 0x80000000/0x80000000 -j NFLOG --nflog-group 7 --nflog-size 128
-A FORWARD -p tcp -m connmark --mark 0x80000000/0x80000000 -j MARK --set-xmark 0x80000000/0xffff0000
COMMIT
*filter
-A FORWARD -p tcp -m mark --mark 0x80000000/0x80000000 -j REJECT --reject-with tcp-reset
COMMIT
`

// scene is a node with two pods, and what of the agent revokes connections.
type scene struct {
	t              *testing.T
	node           *lab.Node
	client, server *lab.Pod
	table          *conntrack.Conn
	watcher        *tcpreset.Watcher
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (s *scene) closing(c io.Closer) {
	s.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.t.Error(err)
		}
	})
}

// newScene starts the node, with rules in a backend of iptables. With resetting, copies of revoked packets become resets of their
// receivers.
func newScene(t *testing.T, backend string, resetting bool) *scene {
	t.Helper()
	testutil.Privileged(t)
	restore := "iptables-" + backend + "-restore"
	testutil.RequireCommand(t, restore)
	l := must[*lab.Lab](t)(lab.New())
	s := &scene{t: t}
	s.closing(l)
	s.node = must[*lab.Node](t)(l.AddNode("n1"))
	s.client, s.server = must[*lab.Pod](t)(s.node.AddPod("shop", "client")), must[*lab.Pod](t)(s.node.AddPod("shop", "server"))
	var watcher *tcpreset.Watcher
	err := s.node.Do(func() (err error) {
		if s.table, err = conntrack.Open(); err == nil && resetting {
			watcher, err = tcpreset.Watch(7, "masqueraded")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.closing(s.table)
	for _, command := range []string{restore, "ip6" + restore[2:]} {
		if _, err := s.node.Run(t.Context(), rules, command, "--noflush", "--wait", "10"); err != nil {
			t.Fatal(err)
		}
	}
	if !resetting {
		return s
	}
	s.watcher = watcher
	s.closing(watcher)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if c := watcher.Counts(); c.Sent == 0 || c.Failed != 0 {
			t.Errorf("%+v", c)
		}
	})
	return s
}

// connect makes a connection to the server's listener by an address that leads to it.
func (s *scene) connect(listener net.Listener, to netip.AddrPort) (client, server net.Conn) {
	s.t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			s.t.Error(err)
		}
		accepted <- c
	}()
	client = must[net.Conn](s.t)(traffic.OpenTCP(s.client.Host, to, 5*time.Second))
	server = <-accepted
	s.t.Cleanup(func() { _ = client.Close(); _ = server.Close() }) // they are reset
	exchange(s.t, client, server)
	exchange(s.t, server, client)
	return client, server
}

func exchange(t *testing.T, from, to net.Conn) {
	t.Helper()
	got := make([]byte, 5)
	if _, err := from.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, got); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) revoke(family conntrack.Family) {
	s.t.Helper()
	all := func(conntrack.Entry) (uint32, bool) { return revoked, true }
	if n, err := s.table.Remark(family, conntrack.Filter{}, revoked, all); err != nil || n == 0 {
		s.t.Fatalf("%d connections revoked, %v", n, err)
	}
}

// ending is how a connection ends for one who only reads: nil if it does not.
func ending(c net.Conn, within time.Duration) error {
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return nil
	}
	return err
}

func (s *scene) listen(at netip.AddrPort) net.Listener {
	s.t.Helper()
	var l net.Listener
	err := s.server.Do(func() (err error) {
		l, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.closing(l)
	return l
}
