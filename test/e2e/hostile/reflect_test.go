package hostile

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// The node answers what it cannot forward with an error to the packet's source, and quotes the packet. A pod that writes
// another's address there would have the node carry its data to whomever it likes, past all policy.
func TestErrorsOfTheNodeCarryNothingToOthers(t *testing.T) {
	s := newScene(t)
	at := []*witness{s.watch(s.b.Host), s.watch(s.c.Host), s.watch(s.ext.Host)}
	own := s.watch(s.m.Host)
	families(t, func(t *testing.T, v6 bool) {
		s.play(t, s.reflections(v6), at...)
		p := testutil.Packet{Src: s.m.Addr(v6), Dst: s.a.Addr(v6), TTL: 1, L4: testutil.UDP{SrcPort: 1, DstPort: 9}}
		s.play(t, []attack{{what: "an error about its own packet", from: s.m, frames: bearing(s.m, p), want: true}}, own)
	})
}

// reflections are packets of m in the names of others that the node answers with an error.
func (s *scene) reflections(v6 bool) (attacks []attack) {
	nowhere := map[bool]netip.Addr{false: netip.MustParseAddr("198.51.100.1"), true: netip.MustParseAddr("3fff::1")}[v6]
	for _, from := range []netip.Addr{s.b.Addr(v6), s.c.Addr(v6), s.ext.Addr(v6)} {
		packets := map[string]testutil.Packet{
			"one hop left":       {Dst: s.a.Addr(v6), TTL: 1},
			"no such address":    {Dst: nowhere},
			"back where it came": {Dst: s.m.Addr(v6)},
			"a port of the node": {Dst: s.n1.Addr(v6)},
		}
		if v6 { // an option of which the kernel sends an error before any rule sees the packet
			refused := testutil.Extension{Header: 0, Body: []byte{0xbf, 4, 0, 0, 0, 0}}
			packets["an option that no kernel knows"] = testutil.Packet{Dst: s.a.Addr(v6), Extensions: []testutil.Extension{refused}}
		}
		for what, p := range packets {
			p.Src, p.L4 = from, testutil.UDP{SrcPort: 1, DstPort: 9}
			attacks = append(attacks, attack{what: fmt.Sprintf("as %s: %s", from, what), from: s.m, frames: bearing(s.m, p)})
		}
	}
	return attacks
}

// The node's kernel puts datagrams together before any rule sees them, and says so to their source if it has waited in vain.
func TestTheNodeSaysNothingAboutHalfADatagram(t *testing.T) {
	s := newScene(t)
	s.followed()
	s.halfDatagrams(t)
}

// halfDatagrams has m send first fragments in the names of others, and waits until the node has given up the datagrams.
func (s *scene) halfDatagrams(t *testing.T) {
	sysctl(t, s.n1.Host, "ipv4/ipfrag_time", "1")
	sysctl(t, s.n1.Host, "ipv6/ip6frag_time", "1")
	sysctl(t, s.n1.Host, "netfilter/nf_conntrack_frag6_timeout", "1")
	at := []*witness{s.watch(s.b.Host), s.watch(s.c.Host), s.watch(s.ext.Host)}
	sent := map[token]string{}
	for _, v6 := range []bool{false, true} {
		for _, from := range []netip.Addr{s.b.Addr(v6), s.c.Addr(v6), s.ext.Addr(v6)} {
			for _, to := range []netip.Addr{s.n1.Addr(v6), s.a.Addr(v6)} {
				k := s.tokens.next()
				sent[k] = fmt.Sprintf("half a datagram from %s to %s", from, to)
				p := testutil.Packet{Src: from, Dst: to, ID: uint32(k), L4: testutil.UDP{SrcPort: 1, DstPort: 9}, Payload: append(k.bytes(), make([]byte, 40)...)}
				p.SrcMAC, p.DstMAC = s.m.MAC(), lab.HostMAC
				send(t, s.m, p.Fragments(32)[0])
			}
		}
	}
	pause(2500 * time.Millisecond) // the kernel gives up after a second
	s.expectNone(t, sent, at...)
}
