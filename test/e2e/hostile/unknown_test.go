package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// A connection by an address that the node translates and the agent does not know to be a Service's is judged by where it goes, too, also
// once it is not on record any more while the kernel still knows it. So is an ICMP error about it.
func TestAFlowByAnUnknownAddressStaysRevoked(t *testing.T) {
	s := newScene(t)
	muteStack(t, s.m)
	muteStack(t, s.c)
	atM, atC := s.watch(s.m.Host), s.watch(s.c.Host)
	type one struct {
		talk
		what string
	}
	var all []one
	port := uint16(0)
	for _, v6 := range []bool{false, true} {
		for _, protocol := range []string{"udp", "tcp"} {
			port++
			front := netip.AddrPortFrom(s.ext.Addr(v6), 8000+port)
			s.translate(front, protocol, netip.AddrPortFrom(s.c.Addr(v6), 80))
			k := talk{protocol: protocol, a: netip.AddrPortFrom(s.m.Addr(v6), 20000+port), c: netip.AddrPortFrom(s.c.Addr(v6), 80), front: front}
			testutil.WaitFor(t, soon, "a first packet to arrive", func() bool {
				token := s.tokens.next()
				send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.SYN))(token)...)
				return s.arrives(token, never, []*witness{atC}) != nil
			})
			s.play(t, []attack{{what: "answer", from: s.c, frames: bearing(s.c, k.packet(k.c, k.a, testutil.SYN|testutil.ACK)), want: true}}, atM)
			s.play(t, []attack{{what: "third", from: s.m, frames: bearing(s.m, k.packet(k.a, k.front, testutil.ACK)), want: true}}, atC)
			all = append(all, one{k, fmt.Sprintf("%s, IPv6 %t", protocol, v6)})
		}
	}
	s.Policy("evil/m", fmt.Sprintf(`{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: %s/128}}]}]}`, s.ext.Addr4(), s.ext.Addr6()))
	s.AwaitPolicies(s.m, 0, 1)
	if !testcluster.IPTables() {
		s.forgetFlows(0) // as silence does: nobody sends in the moment of the change
	}
	for _, when := range []string{"at once", "once more"} {
		for _, k := range all {
			token := s.tokens.next()
			send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.PSH|testutil.ACK))(token)...)
			s.expect(t, k.what+", "+when, token, false, atC)
			fresh := k.talk
			fresh.a = netip.AddrPortFrom(fresh.a.Addr(), fresh.a.Port()+1000)
			token = s.tokens.next()
			send(t, s.m, bearing(s.m, fresh.packet(fresh.a, fresh.front, testutil.SYN))(token)...)
			s.expect(t, k.what+", a new one, "+when, token, false, atC)
			s.play(t, []attack{s.about(k.talk, s.m, k.what+", "+when+", ", false)}, atC)
		}
	}
}
