package hostile

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// onlyC lets shop/a reach shop/c, port 80, and nobody else.
const onlyC = `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{
  to: [{podSelector: {matchLabels: {app: c}}}], ports: [{port: 80}]}]}`

// D-21: a connection through a Service is allowed to the backend that was judged, not to the next one that the kernel
// chooses once its own entry is gone: after a reset, after a silence, by a Service that is gone, and of a pod that was its
// own backend.
func TestAnotherBackendIsJudgedForItself(t *testing.T) {
	for _, mode := range []string{"judge", "strict"} {
		t.Run(mode, func(t *testing.T) {
			s := newScene(t, "--mid-flow", mode)
			for _, timeout := range []string{"close", "established", "syn_sent", "fin_wait", "time_wait", "unacknowledged", "max_retrans"} {
				sysctl(t, s.n1.Host, "netfilter/nf_conntrack_tcp_timeout_"+timeout, "1")
			}
			s.Policy("a", onlyC)
			s.AwaitPolicies(s.a, 0, 1)
			s.forgetFlows(0)
			at := []*witness{s.watch(s.ext.Host), s.watch(s.m.Host)}
			families(t, func(t *testing.T, v6 bool) { s.changeBackends(t, v6, at) })
		})
	}
}

// moved is a connection from a port of shop/a through a Service, whose next backend is another one.
type moved struct {
	what  string
	front netip.AddrPort
	sport uint16
}

func (s *scene) changeBackends(t *testing.T, v6 bool, at []*witness) {
	t.Helper()
	first := listen(t, s.c.Host, netip.AddrPortFrom(s.c.Addr(v6), 80))
	self := listen(t, s.a.Host, netip.AddrPortFrom(s.a.Addr(v6), 80))
	vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.20"), true: netip.MustParseAddr("fd96::20")}[v6]
	var all []moved
	for _, next := range []netip.Addr{s.ext.Addr(v6), s.m.Addr(v6)} {
		// The address is a Service's, or the outside host's own, which a Service has taken over for a while.
		for _, front := range []netip.Addr{vip, s.ext.Addr(v6)} {
			if front != vip && front != next {
				continue
			}
			for _, reset := range []bool{true, false} {
				for _, own := range []bool{false, true} {
					port := 8000 + uint16(len(all))
					m := moved{fmt.Sprintf("%s, then %s, reset %v, to itself %v", front, next, reset, own), netip.AddrPortFrom(front, port), 23000 + port}
					backend, accepted := s.c.Addr(v6), first
					if own {
						backend, accepted = s.a.Addr(v6), self
					}
					s.service(fmt.Sprintf("s%t%d", v6, port), m.front, "tcp", netip.AddrPortFrom(backend, 80))
					conn := dial(t, s.a.Host, m.sport, m.front)
					if err := says(t, conn, <-accepted, "hello", soon); err != nil {
						t.Fatalf("%s: %v", m.what, err)
					}
					if reset {
						conn.SetLinger(0)
						conn.Close()
					} else {
						defer conn.Close()
					}
					if front != next {
						s.translate(m.front, "tcp", netip.AddrPortFrom(next, 80))
					} else if err := s.n1.DeleteService(m.front, "tcp"); err != nil {
						t.Fatal(err)
					}
					all = append(all, m)
				}
			}
		}
	}
	pause(2500 * time.Millisecond) // the kernel forgets after a second
	for range 2 {
		sent := map[token]string{}
		for _, m := range all {
			sent[s.shoot(t, s.a.Host, segment(s.a.Addr(v6), m.front.Addr(), m.sport, m.front.Port()))] = m.what
		}
		s.expectNone(t, sent, at...)
	}
}

// pause waits for the kernel's own timeouts, of which nothing tells.
func pause(d time.Duration) { <-time.After(d) }

// Tunnels are judged by where they go in the end: a Service that leads to a node's VXLAN port is no way around, of any of
// the ports.
func TestATunnelThroughAServiceIsOne(t *testing.T) {
	s := newScene(t)
	at := s.watchLocal(s.n2)
	families(t, func(t *testing.T, v6 bool) {
		vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.77"), true: netip.MustParseAddr("fd96::77")}[v6]
		for i, port := range []uint16{4789, 8472, 6081, 9000} {
			front := netip.AddrPortFrom(vip, 80+uint16(i))
			s.translate(front, "udp", netip.AddrPortFrom(s.n2.Addr(v6), port))
			p := testutil.Packet{Src: s.m.Addr(v6), Dst: vip, L4: testutil.UDP{SrcPort: 1000, DstPort: front.Port()}}
			s.expect(t, fmt.Sprintf("UDP to port %d behind a Service", port), s.shoot(t, s.m.Host, p), port == 9000, at)
		}
		for i, port := range []uint16{4789, 8472, 6081, 9001} { // the Service's own port
			front := netip.AddrPortFrom(vip, port)
			s.translate(front, "udp", netip.AddrPortFrom(s.n2.Addr(v6), 9000))
			p := testutil.Packet{Src: s.m.Addr(v6), Dst: vip, L4: testutil.UDP{SrcPort: 2000 + uint16(i), DstPort: port}}
			s.expect(t, fmt.Sprintf("UDP to port %d of a Service", port), s.shoot(t, s.m.Host, p), port == 9001, at)
		}
		sent := map[token]string{}
		for _, l4 := range []testutil.Layer4{testutil.Raw(4), testutil.Raw(41), testutil.Raw(47), testutil.UDP{SrcPort: 1, DstPort: 8472}} {
			p := testutil.Packet{Src: s.m.Addr(v6), Dst: s.n2.Addr(v6), L4: l4}
			sent[s.shoot(t, s.m.Host, p)] = fmt.Sprintf("%#v to a node", l4)
		}
		s.expectNone(t, sent, at)
	})
	s.Agent(0).Dropped(s.m, 20, "encap")
}

// A port that is no tunnel's at the pod's node is one behind a NodePort of another node: at that node, or at a third one that it sends the
// packet on to, with its own address as the source.
func TestATunnelThroughANodePortOfAnotherNodeIsOne(t *testing.T) {
	s := newScene(t)
	atNode, beyond := s.watchLocal(s.n2), s.watch(s.ext.Host)
	families(t, func(t *testing.T, v6 bool) {
		for i, port := range []uint16{4789, 8472, 6081, 9000} {
			for k, to := range []struct {
				name    string
				backend netip.Addr
				at      *witness
			}{{"the node itself", s.n2.Addr(v6), atNode}, {"a host beyond it", s.ext.Addr(v6), beyond}} {
				front := netip.AddrPortFrom(s.n2.Addr(v6), 30000+uint16(10*i+k))
				if err := s.n2.SetService(lab.Service{Addr: front, Protocol: "udp", Backends: []netip.AddrPort{netip.AddrPortFrom(to.backend, port)}}); err != nil {
					t.Fatal(err)
				}
				p := testutil.Packet{Src: s.m.Addr(v6), Dst: front.Addr(), L4: testutil.UDP{SrcPort: 1000 + uint16(k), DstPort: front.Port()}}
				s.expect(t, fmt.Sprintf("UDP to port %d of %s behind a NodePort", port, to.name), s.shoot(t, s.m.Host, p), port == 9000, to.at)
			}
		}
	})
}

// A new pod whose interface has no program yet is closed for its node, also by way of a Service.
func TestANewPodIsClosedForTheNodeThroughAService(t *testing.T) {
	s := newScene(t)
	s.Agent(0).Kill()
	p := s.Plug(s.n1, "new")
	at := s.watch(p.Host)
	families(t, func(t *testing.T, v6 bool) {
		vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.30"), true: netip.MustParseAddr("fd96::30")}[v6]
		front := netip.AddrPortFrom(vip, 80)
		s.translate(front, "udp", netip.AddrPortFrom(p.Addr(v6), 80))
		k := s.tokens.next()
		conn, err := traffic.OpenUDP(s.n1.Host, front)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write(k.bytes()); err == nil {
			s.expect(t, "from the node through a Service", k, false, at)
		}
		k = s.tokens.next()
		direct, err := traffic.OpenUDP(s.n1.Host, netip.AddrPortFrom(p.Addr(v6), 80))
		if err != nil {
			t.Fatal(err)
		}
		defer direct.Close()
		if _, err := direct.Write(k.bytes()); err == nil {
			s.expect(t, "from the node", k, false, at)
		}
	})
}

// A rule of somebody else that sets our mark of what was seen does not open an interface that has no program yet, whether
// the node's kernel follows connections or not.
func TestAForeignMarkDoesNotOpenANewPod(t *testing.T) {
	s := newScene(t)
	s.prerouting(t, "-A PREROUTING -i cali+ -j MARK --or-mark 0x400")
	s.Agent(0).Kill()
	p := s.Plug(s.n1, "new")
	at := s.watch(s.ext.Host)
	for _, followed := range []bool{false, true} {
		if followed {
			s.followed()
		}
		families(t, func(t *testing.T, v6 bool) {
			for _, from := range []*lab.Pod{p, s.m} {
				packet := testutil.Packet{Src: from.Addr(v6), Dst: s.ext.Addr(v6), L4: testutil.UDP{SrcPort: 1, DstPort: 80}}
				s.expect(t, fmt.Sprintf("%s, connections are followed: %v", from.Name(), followed), s.shoot(t, from.Host, packet), from == s.m, at)
			}
		})
	}
}

// prerouting changes the rules of somebody else in the chain PREROUTING of table mangle, and no others.
func (s *scene) prerouting(t *testing.T, change string) {
	t.Helper()
	for _, command := range []string{"iptables-restore", "ip6tables-restore"} {
		if _, err := s.n1.Run(t.Context(), "*mangle\n"+change+"\nCOMMIT\n", command, "--noflush", "--wait"); err != nil {
			t.Fatal(err)
		}
	}
}
