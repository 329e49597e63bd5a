package tcpreset_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
)

// A pod that goes on sending packets of a revoked flow is answered at a bounded rate.
func TestAFloodOfRevokedPacketsIsAnsweredAtABoundedRate(t *testing.T) {
	s := newScene(t, "legacy", true)
	to := netip.AddrPortFrom(s.server.Addr4(), 8080)
	client, _ := s.connect(s.listen(to), to)
	s.revoke(conntrack.IPv4)
	from := client.LocalAddr().(*net.TCPAddr).AddrPort()
	packet := testutil.Packet{Src: from.Addr(), Dst: to.Addr(), Payload: []byte("more"), L4: testutil.TCP{
		SrcPort: from.Port(), DstPort: to.Port(), Flags: testutil.ACK, Seq: 1,
	}}.IP()
	var raw int
	err := s.client.Do(func() (err error) {
		raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(raw)
	begun, sent := time.Now(), 0
	for ; time.Since(begun) < 2*time.Second; sent++ {
		if err := unix.Sendto(raw, packet, 0, &unix.SockaddrInet4{Addr: to.Addr().As4()}); err != nil {
			t.Fatal(err)
		}
	}
	c := s.watcher.Counts()
	seconds := time.Since(begun).Seconds() // after the counts: until they are read, time allows more
	t.Logf("%d packets in %.1f s: %+v", sent, seconds, c)
	if c.Lost == 0 {
		t.Skipf("the machine is too busy for a flood: %d packets", sent)
	}
	if most := 2000*(seconds+1) + 2000; float64(c.Sent) > most {
		t.Errorf("%d resets, at most %.0f are allowed", c.Sent, most)
	}
}
