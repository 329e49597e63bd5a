package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Where the node wants nothing from pods but answers, a pod cannot reach it by ICMP messages about flows of the node with
// somebody else. The kernel's conntrack calls them related, whatever their type.
func TestErrorsAboutOthersFlowsDoNotReachTheNode(t *testing.T) {
	s := newScene(t, "--default-endpoint-to-host-action", "Drop")
	s.followed()
	at := s.watchLocal(s.n1)
	if _, err := echo.ListenUDP(s.a.Host, 7); err != nil {
		t.Fatal(err)
	}
	families(t, func(t *testing.T, v6 bool) {
		conn, err := traffic.OpenUDP(s.n1.Host, netip.AddrPortFrom(s.a.Addr(v6), 7))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("the node speaks first")); err != nil {
			t.Fatal(err)
		}
		local := netip.MustParseAddrPort(conn.LocalAddr().String())
		flow := testutil.Packet{TTL: 64, Src: s.n1.Addr(v6), Dst: s.a.Addr(v6), L4: testutil.UDP{SrcPort: local.Port(), DstPort: 7}}
		var attacks []attack
		for kind := range uint8(128) {
			p := s.from(s.m, s.n1.Host, v6, testutil.ICMP{Type: kind, Code: 5, Quote: testutil.Quoting(flow)})
			attacks = append(attacks, attack{what: fmt.Sprintf("an ICMP message of type %d", kind), from: s.m, frames: func(k token) [][]byte {
				p.Payload = k.bytes()
				return [][]byte{frame(s.m, p)}
			}})
		}
		s.play(t, attacks, at)
	})
}
