package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// A pod that sends in the name of others changes nothing about their connections, also of what the node's kernel knows of them. The kernel's
// conntrack takes a SYN of a connection that is open for one that it has missed, and begins it again with the answer to it. It needs no number
// of the connection for that, and finds all packets invalid that follow the former numbers. So does an INIT with an association.
func TestPodsSendNothingIntoConnectionsOfOthers(t *testing.T) {
	s := newScene(t)
	s.followed()
	families(t, func(t *testing.T, v6 bool) {
		t.Run("TCP", func(t *testing.T) { s.poisonsConnection(t, v6) })
		t.Run("SCTP", func(t *testing.T) { s.poisonsAssociation(t, v6) })
	})
}

// poisonsConnection is the attack on a connection of TCP.
func (s *scene) poisonsConnection(t *testing.T, v6 bool) {
	at := netip.AddrPortFrom(s.ext.Addr(v6), 443)
	server := listen(t, s.ext.Host, at)
	one := dial(t, s.a.Host, 0, at)
	defer one.Close()
	other := <-server
	both := func(when string) {
		t.Helper()
		if err := says(t, one, other, "to the server", soon); err != nil {
			t.Fatalf("%s: to the server: %v", when, err)
		}
		if err := says(t, other, one, "to the pod", soon); err != nil {
			t.Fatalf("%s: to the pod: %v", when, err)
		}
	}
	both("before the attack")
	port := netip.MustParseAddrPort(one.LocalAddr().String()).Port()
	// Conntrack takes a segment that is far before the numbers it knows for a late one, and one that is far behind them for invalid.
	for _, seq := range []uint32{0, 1 << 30, 1 << 31, 3 << 30} {
		syn := s.from(s.a, s.ext, v6, testutil.TCP{SrcPort: port, DstPort: at.Port(), Seq: seq, Flags: testutil.SYN})
		answer := testutil.Packet{Src: at.Addr(), Dst: s.a.Addr(v6),
			L4: testutil.TCP{SrcPort: at.Port(), DstPort: port, Seq: seq, Ack: seq + 1, Flags: testutil.SYN | testutil.ACK}}
		send(t, s.m, frame(s.m, syn), frame(s.m, answer))
		both(fmt.Sprintf("after an attack from number %#x on", seq))
	}
}

// poisonsAssociation is the attack on an association of SCTP.
func (s *scene) poisonsAssociation(t *testing.T, v6 bool) {
	const tagA, tagC, forged = 100, 101, 666
	atA, atC := s.watch(s.a.Host), s.watch(s.c.Host)
	a, c := netip.AddrPortFrom(s.a.Addr(v6), 3868), netip.AddrPortFrom(s.c.Addr(v6), 3868)
	chunk := func(src, dst netip.AddrPort, tag uint32, kind uint8, k token, fixed ...uint32) testutil.Packet {
		return testutil.Packet{Src: src.Addr(), Dst: dst.Addr(), L4: testutil.SCTP{SrcPort: src.Port(), DstPort: dst.Port(), Tag: tag}, Payload: sctpChunk(kind, fixed, k)}
	}
	say := func(what string, from *lab.Host, src, dst netip.AddrPort, at *witness, tag uint32, kind uint8, fixed ...uint32) {
		t.Helper()
		k := s.tokens.next()
		if err := traffic.SendRaw(from, chunk(src, dst, tag, kind, k, fixed...).IP(), dst.Addr()); err != nil {
			t.Fatal(err)
		}
		s.expect(t, what, k, true, at)
	}
	say("INIT", s.a.Host, a, c, atC, 0, sctpInit, tagA, 1<<16, 1<<16|1, 1, 0xbfff<<16)
	say("INIT-ACK", s.c.Host, c, a, atA, tagA, sctpInitAck, tagC, 1<<16, 1<<16|1, 1, 0xbfff<<16)
	say("COOKIE-ECHO", s.a.Host, a, c, atC, tagC, sctpCookieEcho)
	say("COOKIE-ACK", s.c.Host, c, a, atA, tagA, sctpCookieAck)
	say("data before the attack", s.c.Host, c, a, atA, tagA, sctpData, 1, 0, 0)
	send(t, s.m, frame(s.m, chunk(a, c, 0, sctpInit, s.tokens.next(), forged, 1<<16, 1<<16|1, 1, 0xbfff<<16)))
	say("data to the pod after the attack", s.c.Host, c, a, atA, tagA, sctpData, 2, 0, 0)
	say("data of the pod after the attack", s.a.Host, a, c, atC, tagC, sctpData, 1, 0, 0)
}
