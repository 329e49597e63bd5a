package hostile

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

var (
	dns    = testutil.UDP{SrcPort: 1000, DstPort: 53}
	notDNS = testutil.UDP{SrcPort: 1000, DstPort: 54}
)

const onlyDNS = `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{ports: [{port: 53, protocol: UDP}]}]}`

// What policy denies does not arrive in any disguise, from the same node or from another.
func TestDisguisesDoNotPass(t *testing.T) {
	s := newScene(t)
	s.Policy("b", onlyDNS)
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		for _, from := range []*lab.Pod{s.m, s.e} {
			attacks := s.disguised(from, s.b.Host, v6, notDNS)
			attacks = append(attacks, s.disguised(from, s.b.Host, v6, testutil.TCP{SrcPort: 1, DstPort: 53, Flags: testutil.SYN})...)
			for what, l4 := range map[string]testutil.Layer4{
				"UDPLite": testutil.UDP{SrcPort: 1, DstPort: 53, Lite: true}, "GRE": testutil.Raw(unix.IPPROTO_GRE),
				"IPIP": testutil.Raw(unix.IPPROTO_IPIP), "6in4": testutil.Raw(unix.IPPROTO_IPV6), "SCTP": testutil.Raw(unix.IPPROTO_SCTP),
				"SYN and FIN":            testutil.TCP{SrcPort: 1, DstPort: 53, Flags: testutil.SYN | testutil.FIN},
				"no flags":               testutil.TCP{SrcPort: 1, DstPort: 53},
				"a header of four words": testutil.TCP{SrcPort: 1, DstPort: 53, Flags: testutil.SYN, DataOffset: 4},
			} {
				attacks = append(attacks, attack{what: what, from: from, frames: bearing(from, s.from(from, s.b, v6, l4))})
			}
			attacks = append(attacks,
				attack{what: "allowed", from: from, want: true, frames: bearing(from, s.from(from, s.b, v6, dns))},
				attack{what: "allowed, in fragments", from: from, want: true, frames: cut(from, s.from(from, s.b, v6, dns), 48)})
			s.play(t, attacks, at)
		}
	})
	s.Agent(0).Dropped(s.b, 1, "policy")
}

// A fragment that claims another port than the first of its datagram changes nothing.
func TestFragmentsCannotChangeTheirMind(t *testing.T) {
	s := newScene(t)
	s.Policy("b", onlyDNS)
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		good, bad := s.from(s.m, s.b, v6, dns), s.from(s.m, s.b, v6, notDNS)
		with := func(first, second func(token) [][]byte) func(token) [][]byte {
			return func(k token) [][]byte { return slices.Concat(first(k), second(k)[1:]) }
		}
		tiny := s.from(s.m, s.b, v6, testutil.TCP{SrcPort: 1, DstPort: 53, Flags: testutil.SYN})
		good.ID, bad.ID, tiny.ID = 1, 1, 3
		admitted := attack{what: "an admitted datagram", from: s.m, want: true, frames: cut(s.m, good, 48)}
		later := bad
		later.ID = 2
		s.play(t, []attack{
			admitted,
			{what: "another first of the same identification", from: s.m, frames: func(k token) [][]byte { return cut(s.m, bad, 48)(k)[:1] }},
			{what: "later fragments without a first", from: s.m, frames: func(k token) [][]byte { return cut(s.m, later, 48)(k)[1:] }},
			{what: "a denied first and its rest", from: s.m, frames: with(cut(s.m, later, 48), cut(s.m, later, 48))},
			{what: "a first with 8 bytes of TCP", from: s.m, frames: cut(s.m, tiny, 8)},
		}, at)
	})
}

// A pod sends as itself only: as nobody else, to no group and not to everybody.
func TestPodsSendAsThemselvesToOne(t *testing.T) {
	s := newScene(t)
	var at []*witness
	for _, h := range []*lab.Host{s.a.Host, s.b.Host, s.c.Host, s.ext.Host} {
		at = append(at, s.watch(h))
	}
	families(t, func(t *testing.T, v6 bool) {
		var attacks []attack
		for _, src := range []netip.Addr{s.b.Addr(v6), s.c.Addr(v6), s.n1.Addr(v6), s.ext.Addr(v6), zero(v6), loopback(v6)} {
			for _, dst := range []netip.Addr{s.a.Addr(v6), s.c.Addr(v6), s.ext.Addr(v6)} {
				p := testutil.Packet{Src: src, Dst: dst, L4: dns}
				attacks = append(attacks, attack{what: "from " + src.String() + " to " + dst.String(), from: s.m, frames: bearing(s.m, p)})
			}
		}
		groups := []string{"255.255.255.255", "224.0.0.1", "10.65.1.255", "10.66.0.255"}
		if v6 {
			groups = []string{"ff02::1", "ff02::2", "ff05::1", "ff0e::1"}
		}
		for _, group := range groups {
			p := testutil.Packet{Src: s.m.Addr(v6), Dst: netip.MustParseAddr(group), L4: dns}
			toAll := func(k token) [][]byte {
				f := bearing(s.m, p)(k)[0]
				return [][]byte{f, append(bytes.Repeat([]byte{0xff}, 6), f[6:]...)}
			}
			attacks = append(attacks, attack{what: "to " + group, from: s.m, frames: toAll})
		}
		for _, to := range []*lab.Host{s.a.Host, s.c.Host, s.ext.Host} {
			honest := s.from(s.m, to, v6, dns)
			attacks = append(attacks, attack{what: "honestly to " + to.Name(), from: s.m, want: true, frames: bearing(s.m, honest)})
		}
		s.play(t, attacks, at...)
	})
	s.Agent(0).Dropped(s.m, 1, "spoofed")
}

func zero(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

func loopback(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Loopback()
	}
	return netip.MustParseAddr("127.0.0.1")
}

// An error is believed only of a packet that was sent, and an answer only to one that asked; to a pod that nobody may
// send to.
func TestForgedErrorsAndAnswersDoNotArrive(t *testing.T) {
	s := newScene(t)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		other, errors := s.from(s.b, s.ext, v6, dns), []uint8{3, 4, 11, 12}
		others := map[string]uint8{"an echo request": 8, "an echo reply": 0, "a redirect": 5, "a timestamp reply": 14}
		if v6 {
			errors = []uint8{1, 2, 3, 4}
			others = map[string]uint8{
				"an echo request": 128, "an echo reply": 129, "a redirect": 137, "a router advertisement": 134,
				"a router solicitation": 133, "a report of a group": 131,
			}
		}
		var attacks []attack
		for _, kind := range errors {
			// The token stands behind what is quoted.
			lie := s.from(s.m, s.b, v6, testutil.ICMP{Type: kind, Quote: testutil.Quoting(other)})
			attacks = append(attacks, attack{what: "an error about another's flow", from: s.m, frames: bearing(s.m, lie)})
		}
		for what, kind := range others {
			p := s.from(s.m, s.b, v6, testutil.ICMP{Type: kind})
			attacks = append(attacks, attack{what: what, from: s.m, frames: bearing(s.m, p)})
		}
		s.play(t, attacks, at)
	})
}

// A pod whose egress is closed gets nothing out, of any protocol.
func TestClosedEgressIsClosed(t *testing.T) {
	s := newScene(t)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress]}`)
	s.AwaitPolicies(s.m, 0, 1)
	at := []*witness{s.watch(s.ext.Host), s.watch(s.c.Host), s.watch(s.a.Host), s.watchLocal(s.n1), s.watchLocal(s.n2)}
	families(t, func(t *testing.T, v6 bool) {
		var attacks []attack
		echo := testutil.ICMP{Type: 8, ID: 7}
		if v6 {
			echo.Type = 128
		}
		for _, to := range []*lab.Host{s.ext.Host, s.c.Host, s.a.Host, s.n1.Host, s.n2.Host} {
			for _, l4 := range []testutil.Layer4{dns, echo, testutil.TCP{SrcPort: 1, DstPort: 443, Flags: testutil.SYN}} {
				attacks = append(attacks, s.disguised(s.m, to, v6, l4)...)
			}
		}
		s.play(t, attacks, at...)
	})
}
