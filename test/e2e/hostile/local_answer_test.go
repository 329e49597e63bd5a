package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// A pod that may open nothing answers a client of a NodePort, whom the node masquerades, at the node's address. Once the kernel's conntrack
// has no entry of that flow, the answers go to the node's own sockets: the client chooses the port, and the pod keeps the flow on record.
func TestAnswersToAMasqueradedClientDoNotReachTheNode(t *testing.T) {
	s := newScene(t)
	muteStack(t, s.m)
	s.followed()
	s.keepPorts(t)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress], ingress: [{}]}`)
	s.AwaitPolicies(s.m, 1, 1)
	m := masquerade{scene: s, atM: s.watch(s.m.Host), atExt: s.watch(s.ext.Host)}
	local := s.watchLocal(s.n1)
	families(t, func(t *testing.T, v6 bool) {
		for _, protocol := range []string{"udp", "tcp"} {
			front := netip.AddrPortFrom(s.n1.Addr(v6), 30080)
			if err := s.n1.SetService(lab.Service{Addr: front, Protocol: protocol, Backends: []netip.AddrPort{netip.AddrPortFrom(s.m.Addr(v6), 80)}}); err != nil {
				t.Fatal(err)
			}
			k := talk{protocol: protocol, a: netip.AddrPortFrom(s.ext.Addr(v6), 53), c: netip.AddrPortFrom(s.m.Addr(v6), 80), front: front}
			to := fmt.Sprintf("%s to %v: ", protocol, m.node(k))
			answer := func(flags uint8) func(token) [][]byte { return bearing(s.m, k.packet(k.c, m.node(k), flags)) }
			s.expect(t, to+"from outside", s.shoot(t, s.ext.Host, k.packet(k.a, front, testutil.SYN)), true, m.atM)
			s.play(t, []attack{{what: to + "the answer", from: s.m, frames: answer(testutil.SYN | testutil.ACK), want: true}}, m.atExt)
			s.forgetConnections(0)
			s.play(t, []attack{
				{what: to + "an answer that is not translated", from: s.m, frames: answer(testutil.PSH | testutil.ACK)},
				{what: to + "one more", from: s.m, frames: answer(testutil.PSH | testutil.ACK)},
			}, local, m.atExt)
			s.expect(t, to+"from outside again", s.shoot(t, s.ext.Host, k.packet(k.a, front, testutil.PSH|testutil.ACK)), true, m.atM)
			s.play(t, []attack{{what: to + "the answer to that", from: s.m, frames: answer(testutil.PSH | testutil.ACK), want: true}}, m.atExt)
			if protocol == "udp" {
				m.allowedToTheNode(t, k, local)
			}
		}
	})
}

// allowedToTheNode demands that such answers reach the node while egress policy allows them, and end with that: then they are a flow of the pod.
func (m *masquerade) allowedToTheNode(t *testing.T, k talk, local *witness) {
	t.Helper()
	m.Policy("evil/node", fmt.Sprintf(`{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress], egress: [{
	  to: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: %s/128}}]}]}`, m.n1.Addr4(), m.n1.Addr6()))
	m.AwaitPolicies(m.m, 1, 2)
	m.forgetConnections(0)
	answer := bearing(m.m, k.packet(k.c, m.node(k), 0))
	m.play(t, []attack{{what: "what policy allows", from: m.m, frames: answer, want: true}}, local)
	m.expect(t, "the node's answer", m.shoot(t, m.n1.Host, k.packet(m.node(k), k.c, 0)), true, m.atM)
	m.play(t, []attack{{what: "what policy allows, answered", from: m.m, frames: answer, want: true}}, local)
	m.Remove("policy-evil.node")
	m.AwaitPolicies(m.m, 1, 1)
	m.play(t, []attack{{what: "what policy allows no more", from: m.m, frames: answer}}, local)
	m.forgetConnections(0)
}
