package hostile

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// A pod that may open nothing sends nothing by calling it an answer (D-20), whatever port its ingress admits, through the
// stack or straight to a pod of its own node.
func TestAnAnswerNobodyAskedForIsNone(t *testing.T) {
	for _, mode := range []string{"judge", "strict"} {
		t.Run(mode, func(t *testing.T) {
			s := newScene(t, "--mid-flow", mode)
			s.followed()
			s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 443}]}]}`)
			s.AwaitPolicies(s.a, 1, 1)
			s.forgetFlows(0)
			at := []*witness{s.watch(s.ext.Host), s.watch(s.m.Host), s.watch(s.c.Host)}
			families(t, func(t *testing.T, v6 bool) {
				sent := map[token]string{}
				for _, to := range []interface{ Addr(bool) netip.Addr }{s.ext, s.m, s.c} {
					for _, sport := range []uint16{443, 40000} {
						p := segment(s.a.Addr(v6), to.Addr(v6), sport, 9999)
						what := fmt.Sprintf("from port %d to %s", sport, to.Addr(v6))
						sent[s.shoot(t, s.a.Host, p)] = what
						sent[s.shoot(t, s.a.Host, p)] = what + " again"
					}
				}
				s.expectNone(t, sent, at...)
			})
			s.Agent(0).Dropped(s.a, 1, "midflow")
		})
	}
}

// What comes in mid-flow needs ingress policy, also from an address that somebody has made a Service's.
func TestAServiceAddressIsNoWayIn(t *testing.T) {
	s := newScene(t)
	s.followed()
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress, Egress]}`)
	s.AwaitPolicies(s.b, 1, 1)
	s.Write("service-trap", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: trap, namespace: evil}
spec: {clusterIP: 10.96.0.66, clusterIPs: [10.96.0.66], externalIPs: [%q, %q, %q, %q], ports: [{port: 80}]}
`, s.e.Addr4(), s.e.Addr6(), s.ext.Addr4(), s.ext.Addr6()))
	s.Policy("marker", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`) // written later, so it is in force later
	s.AwaitPolicies(s.b, 2, 1)
	s.forgetFlows(0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		s.expect(t, "from a pod of another node", s.shoot(t, s.e.Host, segment(s.e.Addr(v6), s.b.Addr(v6), 80, 9999)), false, at)
		s.expect(t, "from outside", s.shoot(t, s.ext.Host, segment(s.ext.Addr(v6), s.b.Addr(v6), 80, 9999)), false, at)
	})
}

// What a connection is called by the kernel's conntrack is believed: those that live go on without our own entry, whoever
// opened them, also through a Service, and the grace period has nothing to do with it.
func TestTheKernelKnowsWhoOpened(t *testing.T) {
	testcluster.NeedsBPF(t, "the kernel's connections are the only table of flows")
	s := newScene(t)
	s.followed()
	vips := map[bool]netip.AddrPort{false: netip.MustParseAddrPort("10.96.0.8:80"), true: netip.MustParseAddrPort("[fd96::8]:80")}
	for v6, vip := range vips {
		s.service(fmt.Sprintf("c%t", v6), vip, "tcp", netip.AddrPortFrom(s.c.Addr(v6), 81))
	}
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 80}]}],
  egress: [{to: [{podSelector: {matchLabels: {app: c}}}], ports: [{port: 81}]}]}`)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress, Egress]}`)
	s.AwaitPolicies(s.a, 1, 1)
	s.AwaitPolicies(s.b, 1, 1)
	families(t, func(t *testing.T, v6 bool) {
		in := listen(t, s.a.Host, netip.AddrPortFrom(s.a.Addr(v6), 80))
		out := listen(t, s.c.Host, netip.AddrPortFrom(s.c.Addr(v6), 81))
		closed := listen(t, s.b.Host, netip.AddrPortFrom(s.b.Addr(v6), 80))
		for what, open := range map[string]func() (one, other *net.TCPConn){
			"opened from outside": func() (*net.TCPConn, *net.TCPConn) {
				return dial(t, s.ext.Host, 0, netip.AddrPortFrom(s.a.Addr(v6), 80)), <-in
			},
			"opened by the pod": func() (*net.TCPConn, *net.TCPConn) {
				return dial(t, s.a.Host, 0, netip.AddrPortFrom(s.c.Addr(v6), 81)), <-out
			},
			"opened through a Service": func() (*net.TCPConn, *net.TCPConn) { return dial(t, s.a.Host, 0, vips[v6]), <-out },
			"opened by the node": func() (*net.TCPConn, *net.TCPConn) {
				return dial(t, s.n1.Host, 0, netip.AddrPortFrom(s.a.Addr(v6), 80)), <-in
			},
			"by the node, all else closed": func() (*net.TCPConn, *net.TCPConn) {
				return dial(t, s.n1.Host, 0, netip.AddrPortFrom(s.b.Addr(v6), 80)), <-closed
			},
		} {
			for _, first := range []string{"opener", "responder"} {
				one, other := open()
				if err := says(t, one, other, "hello", soon); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				s.forgetFlows(0)
				from, to := one, other
				if first == "responder" {
					from, to = other, one
				}
				for i := range 3 {
					if err := says(t, from, to, "onward", soon); err != nil {
						t.Errorf("%s, the %s first, line %d: %v", what, first, i, err)
					}
					if err := says(t, to, from, "and back", soon); err != nil {
						t.Errorf("%s, the %s first, line %d back: %v", what, first, i, err)
					}
				}
				one.Close()
				other.Close()
			}
		}
	})
}

// A connection of a pod to its node that is denied does not come to life because the node speaks first.
func TestTheNodeDoesNotOpenByAnswering(t *testing.T) {
	s := newScene(t)
	s.followed()
	families(t, func(t *testing.T, v6 bool) {
		accepted := listen(t, s.n1.Host, netip.AddrPortFrom(s.n1.Addr(v6), 8000))
		pod := dial(t, s.a.Host, 0, netip.AddrPortFrom(s.n1.Addr(v6), 8000))
		node := <-accepted
		if err := says(t, pod, node, "hello", soon); err != nil {
			t.Fatal(err)
		}
		s.Agent(0).Kill() // or the connection is reset as soon as policy changes
		s.forgetFlows(0)
		s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}`)
		s.Agent(0).Start()
		s.AwaitPolicies(s.a, 0, 1)
		s.forgetFlows(0)
		for i := range 3 {
			_ = says(t, node, pod, "speak", never) // to the pod it may come or not
			if err := says(t, pod, node, "secret", never); err == nil {
				t.Errorf("line %d: the node heard the pod", i)
			}
		}
		s.Remove("policy-a")
		s.AwaitPolicies(s.a, 0, 0)
		pod.Close()
		node.Close()
	})
}

// One bit of a packet's mark, set by a rule of somebody else, opens nothing.
func TestAForeignMarkOpensNothing(t *testing.T) {
	s := newScene(t)
	s.followed()
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	s.forgetFlows(0)
	at := s.watch(s.b.Host)
	for _, mark := range []string{"0x400", "0x800", "0x1000", "0x1c00"} {
		s.prerouting(t, "-A PREROUTING -i eth0 -j MARK --or-mark "+mark)
		families(t, func(t *testing.T, v6 bool) {
			sent := map[token]string{}
			for _, l4 := range []testutil.Layer4{
				testutil.TCP{SrcPort: 1, DstPort: 80, Flags: testutil.SYN}, testutil.TCP{SrcPort: 1, DstPort: 80, Flags: testutil.ACK},
				testutil.TCP{SrcPort: 1, DstPort: 80, Flags: testutil.RST | testutil.ACK}, testutil.UDP{SrcPort: 1, DstPort: 80},
			} {
				p := testutil.Packet{Src: s.ext.Addr(v6), Dst: s.b.Addr(v6), L4: l4}
				sent[s.shoot(t, s.ext.Host, p)] = fmt.Sprintf("mark %s, %#v", mark, l4)
			}
			s.expectNone(t, sent, at)
		})
		s.prerouting(t, "-D PREROUTING -i eth0 -j MARK --or-mark "+mark)
	}
}
