package tcpreset_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
)

// patience is for a reset on a busy machine. It is less than the 15 s after which an idle end sends a keep-alive, which would be answered by
// a reset without a Sender, too.
const patience = 10 * time.Second

func TestBothEndsOfARevokedConnectionAreResetAtOnce(t *testing.T) {
	for _, backend := range []string{"legacy", "nft"} {
		t.Run(backend, func(t *testing.T) { checkBothEnds(t, newScene(t, backend, true)) })
	}
}

func checkBothEnds(t *testing.T, s *scene) {
	for family, name := range map[conntrack.Family]string{conntrack.IPv4: "IPv4", conntrack.IPv6: "IPv6"} {
		backend := netip.AddrPortFrom(s.server.Addr(family == conntrack.IPv6), 8080)
		service := netip.MustParseAddrPort("10.96.0.10:80")
		if family == conntrack.IPv6 {
			service = netip.MustParseAddrPort("[fd96::10]:80")
		}
		if err := s.node.SetService(lab.Service{Addr: service, Protocol: "tcp", Backends: []netip.AddrPort{backend}}); err != nil {
			t.Fatal(err)
		}
		listener := s.listen(backend)
		for way, to := range map[string]netip.AddrPort{"direct": backend, "by a Service": service} {
			for _, first := range []string{"client", "server"} {
				client, server := s.connect(listener, to)
				s.revoke(family)
				sender, silent := client, server
				if first == "server" {
					sender, silent = server, client
				}
				start := time.Now()
				if _, err := sender.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if err := ending(sender, patience); !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("%s %s: the %s, which sends, has %v", name, way, first, err)
				}
				if err := ending(silent, patience); !errors.Is(err, unix.ECONNRESET) {
					t.Errorf("%s %s: the end that does not send (%s does) has %v", name, way, first, err)
				}
				t.Logf("%s %s, %s sends: both reset after %v", name, way, first, time.Since(start))
			}
		}
	}
}

// Without the Sender the silent end knows nothing: the test above tests the Sender, not the rules.
func TestWithoutASenderTheSilentEndIsNotReset(t *testing.T) {
	s := newScene(t, "legacy", false)
	to := netip.AddrPortFrom(s.server.Addr4(), 8080)
	client, server := s.connect(s.listen(to), to)
	s.revoke(conntrack.IPv4)
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := ending(client, patience); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the sender has %v", err)
	}
	if err := ending(server, 300*time.Millisecond); err != nil {
		t.Errorf("the silent end has %v", err)
	}
}

// A keep-alive repeats the number before the one that its receiver expects, and is all that an idle connection sends.
func TestAKeepAliveOfARevokedConnectionResetsBothEnds(t *testing.T) {
	s := newScene(t, "nft", true)
	to := netip.AddrPortFrom(s.server.Addr4(), 8080)
	client, server := s.connect(s.listen(to), to)
	s.revoke(conntrack.IPv4)
	config := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second}
	tcp, ok := server.(*net.TCPConn)
	if !ok {
		t.Fatalf("a connection of type %T", server)
	}
	if err := tcp.SetKeepAliveConfig(config); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]net.Conn{"client": client, "server": server} {
		if err := ending(c, patience); !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("the %s has %v", name, err)
		}
	}
}
