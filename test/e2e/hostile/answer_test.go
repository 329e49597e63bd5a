package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// Answers are judged by the backend that they come from, also while the record of the flow has another one: see
// TestAFlowIsJudgedByTheBackendOfTheKernel. So are ICMP errors of both ends about the flow.
func TestAnswersAreJudgedByTheBackendOfTheKernel(t *testing.T) {
	testcluster.NeedsBPF(t, "there the kernel's entry is the record")
	s := newScene(t)
	muteStack(t, s.m)
	muteStack(t, s.c)
	atM, atC := s.watch(s.m.Host), s.watch(s.c.Host)
	fronts := s.fronts(t, atC)
	denied := s.unanswered(t, fronts, 1, atC)
	for _, k := range denied {
		s.record(t, k, s.e.Addr(k.a.Addr().Is6()))
	}
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress], egress: [{to: [{podSelector: {}}]}]}`)
	s.AwaitPolicies(s.m, 1, 1)
	for _, k := range denied {
		name := fmt.Sprintf("%s to %s, of a backend that policy denies: ", k.protocol, k.front)
		s.play(t, []attack{s.about(k, s.m, name, false)}, atC)
		s.play(t, []attack{s.about(k, s.c, name, false)}, atM)
		for range 2 {
			s.play(t, []attack{{what: name + "an answer", from: s.c, frames: bearing(s.c, k.packet(k.c, k.a, testutil.SYN|testutil.ACK)), want: false}}, atM)
		}
	}
	s.Remove("policy-evil.m")
	s.AwaitPolicies(s.m, 0, 0)
	allowed, right := s.unanswered(t, fronts, 2, atC), s.unanswered(t, fronts, 3, atC)
	for _, k := range allowed {
		s.record(t, k, s.e.Addr(k.a.Addr().Is6()))
	}
	s.Policy("evil/m", fmt.Sprintf(`{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress], egress: [{
	  to: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: %s/128}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`, s.c.Addr4(), s.c.Addr6()))
	s.AwaitPolicies(s.m, 1, 1)
	for _, k := range right {
		name := fmt.Sprintf("%s to %s, with the backend on record: ", k.protocol, k.front)
		s.play(t, []attack{s.about(k, s.m, name, true)}, atC)
		s.play(t, []attack{s.about(k, s.c, name, true)}, atM)
	}
	for _, k := range allowed {
		name := fmt.Sprintf("%s to %s, of a backend that policy allows: ", k.protocol, k.front)
		for _, flags := range []uint8{testutil.SYN | testutil.ACK, testutil.PSH | testutil.ACK} {
			s.play(t, []attack{{what: name + "an answer", from: s.c, frames: bearing(s.c, k.packet(k.c, k.a, flags)), want: true}}, atM)
			s.play(t, []attack{{what: name + "a packet after that", from: s.m, frames: bearing(s.m, k.packet(k.a, k.front, testutil.ACK)), want: true}}, atC)
		}
	}
}

// fronts are Services of shop/c, for each family and protocol, which both nodes know.
func (s *scene) fronts(t *testing.T, atC *witness) []talk {
	t.Helper()
	var all []talk
	for v6, vip := range map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.61"), true: netip.MustParseAddr("fd96::61")} {
		for i, protocol := range []string{"udp", "tcp"} {
			k := talk{protocol: protocol, a: netip.AddrPortFrom(s.m.Addr(v6), 20000), c: netip.AddrPortFrom(s.c.Addr(v6), 80),
				front: netip.AddrPortFrom(vip, 8000+uint16(i))}
			s.service(fmt.Sprintf("answers-%s-%t", protocol, v6), k.front, protocol, k.c)
			testutil.WaitFor(t, soon, "a packet by the Service to arrive", func() bool {
				token := s.tokens.next()
				send(t, s.m, bearing(s.m, k.packet(k.a, k.front, testutil.SYN))(token)...)
				return s.arrives(token, never, []*witness{atC}) != nil
			})
			all = append(all, k)
		}
	}
	return all
}

// unanswered are flows of evil/m to the fronts, from a port of its own, of which only the first packet has been sent.
func (s *scene) unanswered(t *testing.T, fronts []talk, port uint16, atC *witness) []talk {
	t.Helper()
	var all []talk
	for _, k := range fronts {
		k.a = netip.AddrPortFrom(k.a.Addr(), 20000+port)
		s.play(t, []attack{{what: "a first packet", from: s.m, frames: bearing(s.m, k.packet(k.a, k.front, testutil.SYN)), want: true}}, atC)
		all = append(all, k)
	}
	return all
}

// about is an ICMP error of one end of a flow about a packet of the other. It quotes the whole packet, so that no checksum of the quote is put
// right in the token behind it.
func (s *scene) about(k talk, from *lab.Pod, what string, want bool) attack {
	p, quoted := testutil.Packet{Src: k.a.Addr(), Dst: k.front.Addr()}, k.packet(k.front, k.a, testutil.ACK)
	if from == s.c {
		p, quoted = testutil.Packet{Src: k.c.Addr(), Dst: k.a.Addr()}, k.packet(k.a, k.c, testutil.ACK)
	}
	quoted.TTL = 64
	p.L4 = testutil.ICMP{Type: 3, Code: 1, Quote: quoted.IP()}
	if p.Src.Is6() {
		p.L4 = testutil.ICMP{Type: 1, Quote: quoted.IP()}
	}
	return attack{what: what + "an ICMP error of " + from.Name(), from: from, want: want, frames: func(token token) [][]byte {
		p.Payload = token.bytes()
		return [][]byte{frame(from, p)}
	}}
}
