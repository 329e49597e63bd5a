package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// A node masquerades a client of a NodePort, and may give it the port of a flow that the node had with the pod before, once the kernel's
// conntrack has no entry of that flow. Packets that the pod sends to this port then go to the client, and packets from this port are the
// client's. The record of the former flow counts for neither direction.
func TestTheRecordOfAFormerFlowLetsNothingThroughANodePort(t *testing.T) {
	s := newScene(t)
	muteStack(t, s.m)
	s.followed()
	s.keepPorts(t)
	s.Policy("evil/m", fmt.Sprintf(`{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress], egress: [{
	  to: [{ipBlock: {cidr: %s/32}}, {ipBlock: {cidr: %s/128}}], ports: [{port: 5353, protocol: UDP}]}]}`, s.n1.Addr4(), s.n1.Addr6()))
	s.AwaitPolicies(s.m, 1, 1)
	m := masquerade{scene: s, atM: s.watch(s.m.Host), atExt: s.watch(s.ext.Host)}
	var all []talk
	families(t, func(t *testing.T, v6 bool) {
		for i, protocol := range []string{"udp", "tcp"} {
			front := netip.AddrPortFrom(s.n1.Addr(v6), 30080)
			if err := s.n1.SetService(lab.Service{Addr: front, Protocol: protocol, Backends: []netip.AddrPort{netip.AddrPortFrom(s.m.Addr(v6), 80)}}); err != nil {
				t.Fatal(err)
			}
			k := talk{protocol: protocol, a: netip.AddrPortFrom(s.ext.Addr(v6), 5000+uint16(i)), c: netip.AddrPortFrom(s.m.Addr(v6), 80), front: front}
			t.Run(protocol+", opened by the node", func(t *testing.T) { m.openedByTheNode(t, k) })
			all = append(all, k)
			k.a = netip.AddrPortFrom(k.a.Addr(), 6000+uint16(i))
			t.Run(protocol+", of the pod with itself", func(t *testing.T) { m.openedByItself(t, k, uint16(8000+i)) })
			if protocol == "udp" {
				k.a = netip.AddrPortFrom(k.a.Addr(), 5353)
				t.Run(protocol+", opened to the node", func(t *testing.T) { m.openedToTheNode(t, k) })
			}
		}
	})
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress], ingress: [{}]}`)
	testutil.WaitFor(t, soon, "the other policy of evil/m", func() bool {
		return s.arrives(s.shoot(t, s.ext.Host, testutil.Packet{Src: s.ext.Addr4(), Dst: s.m.Addr4(), L4: dns}), never, []*witness{m.atM}) != nil
	})
	s.forgetConnections(0)
	for _, k := range all {
		m.admitted(t, k)
	}
}

// Policy ends a connection by a NodePort: both ends are reset, and it does not matter which of them sends first (D-11). They are before
// an end sends a keep-alive of its own, after 15 s.
func TestARevokedConnectionByANodePortIsReset(t *testing.T) {
	s := newScene(t)
	for _, first := range []string{"client", "server"} {
		families(t, func(t *testing.T, v6 bool) {
			server, front := netip.AddrPortFrom(s.a.Addr(v6), 80), netip.AddrPortFrom(s.n1.Addr(v6), 30081)
			if err := s.n1.SetService(lab.Service{Addr: front, Protocol: "tcp", Backends: []netip.AddrPort{server}}); err != nil {
				t.Fatal(err)
			}
			accepted := listen(t, s.a.Host, server)
			from, to := dial(t, s.ext.Host, 0, front), <-accepted
			if err := errors.Join(says(t, from, to, "hello", soon), says(t, to, from, "and back", soon)); err != nil {
				t.Fatal(err)
			}
			if first == "server" {
				from, to = to, from
			}
			s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`)
			s.AwaitPolicies(s.a, 1, 0)
			for _, end := range []error{says(t, from, to, "secret", 5*time.Second), says(t, to, from, "answer", 5*time.Second)} {
				if !errors.Is(end, unix.ECONNRESET) && !errors.Is(end, unix.EPIPE) {
					t.Errorf("the %s first: an end has seen %v", first, end)
				}
			}
			s.Remove("policy-a")
			s.AwaitPolicies(s.a, 0, 0)
			from.Close()
			to.Close()
		})
	}
}

// masquerade is evil/m behind a NodePort of its node, and the outside host before it. In a talk, a is the outside host's end.
type masquerade struct {
	*scene
	atM, atExt *witness
}

// keepPorts makes the first node keep the port of what it masquerades. kube-proxy has it choose one at random; who sends often enough gets
// any.
func (s *scene) keepPorts(t *testing.T) {
	t.Helper()
	for _, command := range []string{"iptables-restore", "ip6tables-restore"} {
		if _, err := s.n1.Run(t.Context(), "*nat\n-I POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE\nCOMMIT\n", command, "--noflush", "--wait"); err != nil {
			t.Fatal(err)
		}
	}
}

// node is the end of the outside host as the pod sees it.
func (m *masquerade) node(k talk) netip.AddrPort {
	return netip.AddrPortFrom(m.n1.Addr(k.a.Addr().Is6()), k.a.Port())
}

func (m *masquerade) openedByTheNode(t *testing.T, k talk) {
	m.expect(t, "from the node", m.shoot(t, m.n1.Host, k.packet(m.node(k), k.c, testutil.SYN)), true, m.atM)
	m.others(t, k)
}

func (m *masquerade) openedByItself(t *testing.T, k talk, port uint16) {
	vip := map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.71"), true: netip.MustParseAddr("fd96::71")}[k.a.Addr().Is6()]
	own := k
	own.a, own.front = netip.AddrPortFrom(k.c.Addr(), k.a.Port()), netip.AddrPortFrom(vip, port)
	m.service(fmt.Sprintf("own-%s-%t", k.protocol, vip.Is6()), own.front, k.protocol, k.c)
	testutil.WaitFor(t, soon, "the Service to be known", func() bool {
		token := m.tokens.next()
		send(t, m.m, bearing(m.m, own.packet(netip.AddrPortFrom(own.a.Addr(), 7000), own.front, testutil.SYN))(token)...)
		return m.arrives(token, never, []*witness{m.atM}) != nil
	})
	for _, one := range []struct {
		what     string
		from, to netip.AddrPort
		flags    uint8
	}{
		{"the first packet", own.a, own.front, testutil.SYN}, {"its answer", k.c, m.node(k), testutil.SYN | testutil.ACK},
		{"the packet after that", own.a, own.front, testutil.ACK}, {"the next answer", k.c, m.node(k), testutil.PSH | testutil.ACK},
	} {
		m.play(t, []attack{{what: "to itself, " + one.what, from: m.m, frames: bearing(m.m, own.packet(one.from, one.to, one.flags)), want: true}}, m.atM)
	}
	large := own.packet(own.a, own.front, testutil.PSH|testutil.ACK)
	large.SrcMAC, large.DstMAC = m.m.MAC(), lab.HostMAC
	m.play(t, []attack{{what: "to itself, in fragments", from: m.m, frames: func(k token) [][]byte { return pieces(large, k) }, want: true}}, m.atM)
	m.others(t, k)
}

func (m *masquerade) openedToTheNode(t *testing.T, k talk) {
	at := m.watchLocal(m.n1)
	m.play(t, []attack{{what: "to the node", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), 0)), want: true}}, at)
	m.expect(t, "the node's answer", m.shoot(t, m.n1.Host, k.packet(m.node(k), k.c, 0)), true, m.atM)
	m.play(t, []attack{{what: "to the node again", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), 0)), want: true}}, at)
	m.others(t, k)
}

// others demands that nothing passes between the outside host and the pod by the NodePort.
func (m *masquerade) others(t *testing.T, k talk) {
	t.Helper()
	m.forgetConnections(0)
	for _, flags := range []uint8{testutil.SYN, testutil.PSH | testutil.ACK} {
		m.expect(t, "from outside", m.shoot(t, m.ext.Host, k.packet(k.a, k.front, flags)), false, m.atM)
		m.play(t, []attack{
			{what: "to outside", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), testutil.SYN|testutil.ACK))},
			{what: "to outside, data", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), testutil.PSH|testutil.ACK))},
			m.aboutNode(k),
		}, m.atExt)
		m.expect(t, "from outside, an ICMP error", m.shoot(t, m.ext.Host, failure(k.a, k.packet(k.front, k.a, testutil.ACK))), false, m.atM)
		if flags != testutil.SYN {
			m.expect(t, "from outside, in fragments", m.fragments(t, k, flags), false, m.atM)
		}
	}
}

// fragments sends a packet of the outside host in pieces.
func (m *masquerade) fragments(t *testing.T, k talk, flags uint8) token {
	t.Helper()
	token := m.tokens.next()
	for _, f := range pieces(k.packet(k.a, k.front, flags), token) {
		if err := traffic.SendRaw(m.ext.Host, f[14:], k.front.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	return token
}

// pieces are the frames of a packet's fragments, which the node puts together. Over IPv6 the first one has a header that does not fit into
// the others, so the node makes new fragments, which have come by no interface.
func pieces(p testutil.Packet, bears token) [][]byte {
	p.Payload, p.ID = bytes.Repeat(bears.bytes(), 100), uint32(bears)
	frames := p.Fragments(400)
	if p.Src.Is6() {
		p.Extensions = []testutil.Extension{{Header: unix.IPPROTO_DSTOPTS, Body: append([]byte{1, 28}, make([]byte, 28)...)}}
		frames[0] = p.Fragments(400)[0]
	}
	return frames
}

// admitted demands that what ingress policy allows passes by the NodePort, whosever record has its ends, and answers and errors with it.
func (m *masquerade) admitted(t *testing.T, k talk) {
	t.Helper()
	what := fmt.Sprintf("%s to %s, admitted: ", k.protocol, k.front)
	m.expect(t, what+"from outside", m.shoot(t, m.ext.Host, k.packet(k.a, k.front, testutil.SYN)), true, m.atM)
	for _, a := range []attack{
		{what: what + "the answer", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), testutil.SYN|testutil.ACK)), want: true},
		m.aboutNode(k),
	} {
		a.want = true
		m.play(t, []attack{a}, m.atExt)
	}
	m.expect(t, what+"data from outside", m.shoot(t, m.ext.Host, k.packet(k.a, k.front, testutil.PSH|testutil.ACK)), true, m.atM)
	m.play(t, []attack{{what: what + "data", from: m.m, frames: bearing(m.m, k.packet(k.c, m.node(k), testutil.PSH|testutil.ACK)), want: true}}, m.atExt)
	m.expect(t, what+"an ICMP error from outside", m.shoot(t, m.ext.Host, failure(k.a, k.packet(k.front, k.a, testutil.ACK))), true, m.atM)
	m.expect(t, what+"fragments", m.fragments(t, k, testutil.PSH|testutil.ACK), true, m.atM)
}

// aboutNode is an ICMP error of the pod about a packet that seems to be its node's.
func (m *masquerade) aboutNode(k talk) attack {
	p := failure(k.c, k.packet(m.node(k), k.c, testutil.ACK))
	return attack{what: "to outside, an ICMP error", from: m.m, frames: func(token token) [][]byte {
		p.Payload = token.bytes()
		return [][]byte{frame(m.m, p)}
	}}
}

// failure is an ICMP error of the end that a packet was for.
func failure(of netip.AddrPort, quoted testutil.Packet) testutil.Packet {
	quoted.TTL = 64
	p := testutil.Packet{Src: of.Addr(), Dst: quoted.Src, L4: testutil.ICMP{Type: 3, Code: 1, Quote: quoted.IP()}}
	if p.Src.Is6() {
		p.L4 = testutil.ICMP{Type: 1, Quote: quoted.IP()}
	}
	return p
}
