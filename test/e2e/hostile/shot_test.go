package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
)

// shoot sends one packet of any host that bears a token, past the host's own connections.
func (s *scene) shoot(t *testing.T, from *lab.Host, p testutil.Packet) token {
	t.Helper()
	k := s.tokens.next()
	p.Payload = append(k.bytes(), p.Payload...)
	if err := traffic.SendRaw(from, p.IP(), p.Dst); err != nil {
		t.Fatal(err)
	}
	return k
}

// expect demands that the token arrives at one of the witnesses, or that it does not.
func (s *scene) expect(t *testing.T, what string, k token, want bool, at ...*witness) {
	t.Helper()
	limit := never
	if want {
		limit = soon
	}
	if got := s.arrives(k, limit, at); (got != nil) != want {
		t.Errorf("%s: arrived: %v, want %v", what, got != nil, want)
	}
}

// expectNone demands that none of the tokens arrives at any of the witnesses. All have been sent: one wait is for all of them.
func (s *scene) expectNone(t *testing.T, sent map[token]string, at ...*witness) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	for k, what := range sent {
		if w := s.tokens.await(ctx, k, at); w != nil {
			t.Errorf("%s: arrived at %s", what, w.name)
		}
	}
}

// segment is a TCP packet with data and without SYN.
func segment(src, dst netip.Addr, sport, dport uint16) testutil.Packet {
	return testutil.Packet{Src: src, Dst: dst, L4: testutil.TCP{SrcPort: sport, DstPort: dport, Seq: 1, Ack: 1, Flags: testutil.PSH | testutil.ACK}}
}

// followed makes the kernel of both nodes follow connections, as kube-proxy's rules do.
func (s *scene) followed() {
	s.T.Helper()
	for i, a := range []netip.Addr{s.c.Addr4(), s.c.Addr6()} {
		s.translate(netip.AddrPortFrom([]netip.Addr{netip.MustParseAddr("10.96.9.9"), netip.MustParseAddr("fd96::9:9")}[i], 9), "tcp", netip.AddrPortFrom(a, 9))
	}
}

// sysctl sets a value in a host's network namespace.
func sysctl(t *testing.T, h *lab.Host, name, value string) {
	t.Helper()
	if err := h.Do(func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644) }); err != nil {
		t.Fatal(err)
	}
}

// forgetFlows empties the tables of flows of a node's agent, as evictions do, and keeps its TCP in mid-flow from being
// believed to be answers.
func (s *scene) forgetFlows(node int) {
	s.T.Helper()
	if testcluster.IPTables() {
		s.forgetConnections(node)
		return
	}
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: s.Agent(node).BPFFS})
	if err != nil {
		s.T.Fatal(err)
	}
	defer m.Close()
	if grace := m.Map(bpf.MargayMapMidflowGrace); grace != nil {
		if err := grace.Put(uint32(0), bpf.Grace{}); err != nil {
			s.T.Fatal(err)
		}
	}
	for _, name := range []string{bpf.MargayMapCt4, bpf.MargayMapCt6} {
		if err := empty(m.Map(name)); err != nil {
			s.T.Fatalf("empty map %s: %v", name, err)
		}
	}
}

// forgetConnections empties the kernel's table of connections of a node.
func (s *scene) forgetConnections(node int) {
	s.T.Helper()
	err := s.Node(node).Do(func() error {
		c, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
			var all []conntrack.Entry
			err = errors.Join(err, c.Dump(family, conntrack.Filter{}, func(e conntrack.Entry) { all = append(all, e) }))
			c.Delete(all) // some may just have ended
		}
		return err
	})
	if err != nil {
		s.T.Fatal(err)
	}
}

func empty(m *ebpf.Map) error {
	for {
		key, err := m.NextKeyBytes(nil)
		if err != nil || key == nil {
			return err
		}
		_ = m.Delete(key) // it may just have been evicted or moved
	}
}

// dial opens a TCP connection from a port of the host's choice or, if sport is not 0, from that one.
func dial(t *testing.T, h *lab.Host, sport uint16, dst netip.AddrPort) *net.TCPConn {
	t.Helper()
	var c net.Conn
	err := h.Do(func() (err error) {
		d := net.Dialer{Timeout: soon}
		if sport != 0 {
			d.LocalAddr = &net.TCPAddr{IP: h.Addr(dst.Addr().Is6()).AsSlice(), Port: int(sport)}
		}
		c, err = d.DialContext(t.Context(), "tcp", dst.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// listen accepts connections in a host's network namespace and hands them over.
func listen(t *testing.T, h *lab.Host, at netip.AddrPort) <-chan *net.TCPConn {
	t.Helper()
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *net.TCPConn, 16)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c.(*net.TCPConn)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		for c := range accepted {
			c.Close()
		}
	})
	return accepted
}

// says sends a line over a connection and reports whether it arrives at its other end.
func says(t *testing.T, from, to *net.TCPConn, line string, limit time.Duration) error {
	t.Helper()
	if _, err := fmt.Fprint(from, line); err != nil {
		return err
	}
	b := make([]byte, len(line))
	if err := to.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	for n := 0; n < len(b); {
		more, err := to.Read(b[n:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			more, err = readNow(to, b[n:])
		}
		if err != nil {
			return err
		}
		n += more
	}
	return nil
}

// readNow reads what has arrived by now. A read with a deadline does not, if its process gets no CPU until the deadline is over.
func readNow(c *net.TCPConn, b []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var readErr error
	err = raw.Control(func(fd uintptr) { n, readErr = unix.Read(int(fd), b) })
	switch err = errors.Join(err, readErr); {
	case errors.Is(err, unix.EAGAIN):
		return 0, os.ErrDeadlineExceeded
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}
