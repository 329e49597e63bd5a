package hostile

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// unfollowable sends a packet of the connection that the kernel's conntrack finds invalid, so that it is not translated: a
// datagram with a wrong checksum, a segment far outside of the window.
func (r *removals) unfollowable(t *testing.T, from *lab.Pod, k talk) token {
	t.Helper()
	p := k.packet(k.a, k.front, testutil.PSH|testutil.ACK)
	token := r.tokens.next()
	p.Payload = token.bytes()
	if h, ok := p.L4.(testutil.TCP); ok {
		h.Seq += 1 << 30
		p.L4 = h
	}
	f := frame(from, p)
	if k.protocol == "udp" {
		at := ipv4Transport + 6
		if p.Src.Is6() {
			at = ipv6Transport + 6
		}
		binary.BigEndian.PutUint16(f[at:], binary.BigEndian.Uint16(f[at:])^0x5555)
	}
	send(t, from, f)
	return token
}

// A pod's connection through a Service is revoked by its backend (D-11, D-17), also if the pod has sent a packet in it that the kernel's
// conntrack does not follow, and that was therefore judged by the Service's address.
func TestAPacketThatIsNotTranslatedSavesNoConnection(t *testing.T) {
	for _, mode := range []string{"judge", "strict"} {
		t.Run(mode, func(t *testing.T) { savesNone(t, mode) })
	}
}

func savesNone(t *testing.T, mode string) {
	s := newScene(t, "--mid-flow", mode)
	muteStack(t, s.m)
	muteStack(t, s.c)
	atM, atC := s.watch(s.m.Host), s.watch(s.c.Host)
	for _, v6 := range []bool{false, true} {
		for i, protocol := range []string{"udp", "tcp"} {
			vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.50"), true: netip.MustParseAddr("fd96::50")}[v6]
			front := netip.AddrPortFrom(vip, 8000+uint16(i))
			s.service(fmt.Sprintf("saved-%s-%t", protocol, v6), front, protocol, netip.AddrPortFrom(s.c.Addr(v6), 80))
		}
	}
	r := &removals{scene: s}
	for _, forget := range []bool{false, true} {
		if forget {
			s.Remove("policy-evil.m")
			s.AwaitPolicies(s.m, 0, 0)
		}
		type one struct {
			talk
			what string
		}
		var all []one
		for _, v6 := range []bool{false, true} {
			for i, protocol := range []string{"udp", "tcp"} {
				vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.50"), true: netip.MustParseAddr("fd96::50")}[v6]
				front := netip.AddrPortFrom(vip, 8000+uint16(i))
				for _, poisoned := range []bool{false, true} {
					r.port++
					k := talk{protocol: protocol, a: netip.AddrPortFrom(s.m.Addr(v6), 20000+r.port), c: netip.AddrPortFrom(s.c.Addr(v6), 80), front: front}
					testutil.WaitFor(t, soon, "a first packet to arrive", func() bool {
						token := s.tokens.next()
						send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.SYN))(token)...)
						return s.arrives(token, never, []*witness{atC}) != nil
					})
					s.play(t, []attack{{what: "answer", from: s.c, frames: bearing(s.c, k.packet(k.c, k.a, testutil.SYN|testutil.ACK)), want: true}}, atM)
					s.play(t, []attack{{what: "third", from: s.m, frames: bearing(s.m, k.packet(k.a, k.front, testutil.ACK)), want: true}}, atC)
					if poisoned && !forget {
						r.unfollowable(t, s.m, k)
					}
					all = append(all, one{k, fmt.Sprintf("%s, IPv6 %t, with a packet that is not followed: %t, record forgotten %t", protocol, v6, poisoned, forget)})
				}
			}
		}
		s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress], egress: [{to: [
		  {ipBlock: {cidr: 0.0.0.0/0, except: [10.65.0.0/16]}}, {ipBlock: {cidr: "::/0", except: ["fd65::/32"]}}]}]}`)
		s.AwaitPolicies(s.m, 0, 1)
		if forget {
			s.forgetFlows(0)
		}
		for i, k := range all {
			if forget && i%2 == 1 {
				r.unfollowable(t, s.m, k.talk)
			}
			token := s.tokens.next()
			send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.PSH|testutil.ACK))(token)...)
			s.expect(t, k.what, token, false, atC)
		}
	}
}

// A packet that the kernel's conntrack does not follow ends no connection through a Service that policy allows.
func TestAPacketThatIsNotTranslatedEndsNoConnection(t *testing.T) {
	s := newScene(t)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{
	  to: [{podSelector: {matchLabels: {app: c}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
	s.AwaitPolicies(s.a, 0, 1)
	muteStack(t, s.a)
	muteStack(t, s.c)
	r := &removals{scene: s, atA: s.watch(s.a.Host), atC: s.watch(s.c.Host)}
	families(t, func(t *testing.T, v6 bool) {
		for i, protocol := range []string{"udp", "tcp"} {
			t.Run(protocol, func(t *testing.T) {
				vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.50"), true: netip.MustParseAddr("fd96::50")}[v6]
				front := netip.AddrPortFrom(vip, 8000+uint16(i))
				s.service(fmt.Sprintf("kept-%s-%t", protocol, v6), front, protocol, netip.AddrPortFrom(s.c.Addr(v6), 80))
				early := talk{protocol: protocol, a: netip.AddrPortFrom(s.a.Addr(v6), 19999)}
				testutil.WaitFor(t, soon, "the Service to be known", func() bool {
					token := s.tokens.next()
					send(t, s.a, bearing(s.a, early.packet(early.a, front, testutil.SYN))(token)...)
					return s.arrives(token, never, []*witness{r.atC}) != nil
				})
				k := r.begin(t, v6, protocol, front)
				r.fromA(t, k, "before", testutil.PSH|testutil.ACK, true, r.atC)
				r.unfollowable(t, s.a, k)
				r.fromA(t, k, "after a packet that is not followed", testutil.PSH|testutil.ACK, true, r.atC)
				r.fromC(t, k, "after a packet that is not followed", testutil.PSH|testutil.ACK, true)
			})
		}
	})
}
