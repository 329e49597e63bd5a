package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
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

// An error in fragments is about the flow that it quotes when they are put together, and not about one that the first of them has behind the
// end of its packet, where the kernel cuts it off.
func TestAnErrorQuotesNothingBehindItsEnd(t *testing.T) {
	s := newScene(t, "--default-endpoint-to-host-action", "Drop")
	s.followed()
	at := s.watchLocal(s.n1)
	for _, p := range []*lab.Pod{s.a, s.m} {
		if _, err := echo.ListenUDP(p.Host, 7); err != nil {
			t.Fatal(err)
		}
	}
	families(t, func(t *testing.T, v6 bool) {
		received := func(p *lab.Pod) []byte {
			return testutil.Quoting(s.fromNode(t, p, v6))
		}
		own, others := received(s.m), received(s.a)
		whole := s.from(s.m, s.n1.Host, v6, testutil.ICMP{Type: 3, Code: 3, Quote: others})
		honest := s.from(s.m, s.n1.Host, v6, testutil.ICMP{Type: 3, Code: 3, Quote: own})
		if v6 {
			whole.L4 = testutil.ICMP{Type: 1, Code: 4, Quote: others}
			honest.L4 = testutil.ICMP{Type: 1, Code: 4, Quote: own}
		}
		whole.ID, honest.ID = 1, 2
		parts := func(p testutil.Packet, behind []byte) func(k token) [][]byte {
			return func(k token) [][]byte {
				p.SrcMAC, p.DstMAC = s.m.MAC(), lab.HostMAC
				p.Payload = k.bytes()
				frames := p.Fragments(1000)
				if behind != nil {
					frames = p.Fragments(8)
					frames[0] = append(frames[0], behind...)
				}
				return frames
			}
		}
		s.play(t, []attack{
			{what: "an error about the pod's own flow with the node", from: s.m, frames: parts(honest, nil), want: true},
			{what: "an error about another pod's flow, behind a quote of its own", from: s.m, frames: parts(whole, own)},
		}, at)
	})
}

// fromNode is a datagram of a flow that the first node has opened to a pod of its own.
func (s *scene) fromNode(t *testing.T, p *lab.Pod, v6 bool) testutil.Packet {
	t.Helper()
	conn, err := traffic.OpenUDP(s.n1.Host, netip.AddrPortFrom(p.Addr(v6), 7))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write([]byte("the node speaks first")); err != nil {
		t.Fatal(err)
	}
	local := netip.MustParseAddrPort(conn.LocalAddr().String())
	return testutil.Packet{TTL: 64, Src: s.n1.Addr(v6), Dst: p.Addr(v6), L4: testutil.UDP{SrcPort: local.Port(), DstPort: 7}}
}
