package hostile

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// A pod that lists the address of a machine outside, and to which the node then routes the address, does not continue the flows that
// others had with the machine: its own policy judges them first.
func TestARouteToAListedSourceContinuesNoFlowOfOthers(t *testing.T) {
	s := newScene(t, "--workload-source-spoofing", "Any")
	s.followed()
	s.lists(s.m, "0.0.0.0/0", "::/0")
	s.Policy("evil/m", `{podSelector: {}, policyTypes: [Ingress, Egress]}`)
	s.AwaitPolicies(s.m, 1, 1)
	atA, atM, atExt := s.watch(s.a.Host), s.watch(s.m.Host), s.watch(s.ext.Host)
	families(t, func(t *testing.T, v6 bool) {
		machine := s.ext.Addr(v6)
		forth := testutil.Packet{Src: s.a.Addr(v6), Dst: machine, L4: testutil.UDP{SrcPort: 5300, DstPort: 53}}
		back := testutil.Packet{Src: machine, Dst: s.a.Addr(v6), L4: testutil.UDP{SrcPort: 54, DstPort: 5301}}
		s.play(t, []attack{{what: "to the machine", from: s.a, frames: bearing(s.a, forth), want: true}}, atExt)
		s.expect(t, "from the machine", s.shoot(t, s.ext.Host, back), true, atA)
		route := []string{"route", "replace", netip.PrefixFrom(machine, machine.BitLen()).String(), "dev", s.m.Iface()}
		if _, err := s.n1.Run(t.Context(), "", "ip", route...); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, "flows to be judged again", func() bool { // within a second or so with iptables
			token := s.tokens.next()
			send(t, s.m, bearing(s.m, back)(token)...)
			return s.arrives(token, never, []*witness{atA}) == nil
		})
		s.play(t, []attack{{what: "to the machine, now routed to m", from: s.a, frames: bearing(s.a, forth)}}, atM)
		s.play(t, []attack{{what: "m as the machine", from: s.m, frames: bearing(s.m, back)}}, atA)
	})
}
