package hostile

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
)

// Types of chunks of SCTP: RFC 9260, 3.2.
const (
	sctpData       = 0
	sctpInit       = 1
	sctpInitAck    = 2
	sctpAbort      = 6
	sctpCookieEcho = 10
	sctpCookieAck  = 11
)

// TestAnAssociationBeginsAgainThroughAService, from the port of one that was aborted: answers are the new one's, and need no ingress policy.
func TestAnAssociationBeginsAgainThroughAService(t *testing.T) {
	testcluster.NeedsBPF(t, "there the kernel's entry is the record")
	s := newScene(t)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress], ingress: []}`)
	s.AwaitPolicies(s.a, 1, 0)
	atA, atC := s.watch(s.a.Host), s.watch(s.c.Host)
	for _, v6 := range []bool{false, true} {
		front := netip.AddrPortFrom(netip.MustParseAddr("10.96.0.21"), 8000)
		if v6 {
			front = netip.AddrPortFrom(netip.MustParseAddr("fd96::21"), 8000)
		}
		a, c := netip.AddrPortFrom(s.a.Addr(v6), 1000), netip.AddrPortFrom(s.c.Addr(v6), 80)
		s.service("associations-"+a.Addr().String()[:2], front, "sctp", c)
		s.awaitTranslated(front.Addr())
		send := func(from *lab.Host, src, dst netip.AddrPort, tag uint32, chunk uint8, fixed ...uint32) token {
			k := s.tokens.next()
			p := testutil.Packet{Src: src.Addr(), Dst: dst.Addr(), L4: testutil.SCTP{SrcPort: src.Port(), DstPort: dst.Port(), Tag: tag}, Payload: sctpChunk(chunk, fixed, k)}
			if err := traffic.SendRaw(from, p.IP(), dst.Addr()); err != nil {
				t.Fatal(err)
			}
			return k
		}
		for i, name := range []string{"the first", "the second"} {
			tagA, tagC := uint32(100+2*i), uint32(101+2*i)
			s.expect(t, name+" INIT", send(s.a.Host, a, front, 0, sctpInit, tagA, 1<<16, 1<<16|1, 1, 0xbfff<<16), true, atC)
			s.expect(t, name+" INIT-ACK", send(s.c.Host, c, a, tagA, sctpInitAck, tagC, 1<<16, 1<<16|1, 1, 0xbfff<<16), true, atA)
			s.expect(t, name+" COOKIE-ECHO", send(s.a.Host, a, front, tagC, sctpCookieEcho), true, atC)
			s.expect(t, name+" COOKIE-ACK", send(s.c.Host, c, a, tagA, sctpCookieAck), true, atA)
			s.expect(t, name+" ABORT", send(s.a.Host, a, front, tagC, sctpAbort), true, atC)
		}
	}
}

// awaitTranslated waits until the agent of the client's node knows that the node may translate an address.
func (s *scene) awaitTranslated(front netip.Addr) {
	s.T.Helper()
	maps := s.Agent(0).Maps()
	testutil.WaitFor(s.T, soon, "the address of a Service to be known", func() bool {
		var info bpf.HostInfo
		var err error
		if front.Is4() {
			err = maps.Map(bpf.MargayMapIp4Host).Lookup(bpfmaps.IP4(front), &info)
		} else {
			err = maps.Map(bpf.MargayMapIp6Host).Lookup(bpfmaps.IP6(front), &info)
		}
		return err == nil && uint32(info.Flags)&bpf.AddrMayTranslate != 0
	})
}

// sctpChunk is a chunk with words, the last of which begins a parameter of which the rest is the token, or without any with the token alone.
func sctpChunk(kind uint8, words []uint32, k token) []byte {
	var body []byte
	for _, w := range words {
		body = binary.BigEndian.AppendUint32(body, w)
	}
	text := k.bytes()
	if len(body) > 0 {
		binary.BigEndian.PutUint16(body[len(body)-2:], uint16(4+len(text)))
	}
	body = append(body, text...)
	chunk := append([]byte{kind, 0, 0, 0}, body...)
	binary.BigEndian.PutUint16(chunk[2:], uint16(len(chunk)))
	for len(chunk)%4 != 0 {
		chunk = append(chunk, 0)
	}
	return chunk
}
