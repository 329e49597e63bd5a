package hostile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// arpRequest asks the node for its gateway's address, as if the pod had the address from.
func arpRequest(p *lab.Pod, from netip.Addr) []byte {
	frame := append([]byte{255, 255, 255, 255, 255, 255}, p.MAC()...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, p.MAC()...), from.AsSlice()...)
	return append(frame, 0, 0, 0, 0, 0, 0, 169, 254, 1, 1)
}

// solicitation asks for the node's link-local address, as if the pod had the address from.
func solicitation(p *lab.Pod, from netip.Addr) []byte {
	to := netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
	body := append(to.AsSlice(), append([]byte{1, 1}, p.MAC()...)...)
	return frame(p, testutil.Packet{Src: from, Dst: to, TTL: 255, L4: testutil.ICMP{Type: 135}, Payload: body})
}

// neighbours counts the entries that the node has for what is behind the pod's interface.
func (s *scene) neighbours(p *lab.Pod, family int) int {
	s.T.Helper()
	list, err := p.Node().Netlink().NeighList(p.IfIndex(), family)
	if err != nil {
		s.T.Fatal(err)
	}
	return len(list)
}

// TestAPodWhoseObjectIsGoneFillsNothing: its processes run on, and nothing is known of its addresses any more. Only its rate bounds the entries.
func TestAPodWhoseObjectIsGoneFillsNothing(t *testing.T) {
	testcluster.NeedsBPF(t, "ARP is not judged")
	s := newScene(t)
	s.AwaitPolicies(s.m, 0, 0)
	s.Remove("pod-evil.m")
	testutil.WaitFor(t, soon, "the agent to forget the pod", func() bool {
		a, err := s.Agents[s.n1].Ask("status")
		return err == nil && a.Status.Ready && s.Row(s.m) == nil
	})
	const forged = 300
	begin := time.Now()
	for i := range uint32(forged) {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], 10<<24|78<<16|i+1)
		send(t, s.m, arpRequest(s.m, netip.AddrFrom4(a)))
	}
	got := s.neighbours(s.m, unix.AF_INET)
	if most := 4 + int(time.Since(begin)/time.Second) + 1; got > most {
		t.Errorf("the node has %d neighbours behind the pod's interface, want %d at most", got, most)
	}
}

// TestAPodThatIsNotReadyResolvesItsGateway (D-18), and gets nothing else through.
func TestAPodThatIsNotReadyResolvesItsGateway(t *testing.T) {
	testcluster.NeedsBPF(t, "IPv6 neighbour discovery waits for the pod's policy")
	s := newScene(t)
	at := s.watch(s.ext.Host)
	p := s.Plug(s.n1, "evil/early")
	for _, family := range []struct {
		number  int
		gateway netip.Addr
	}{{unix.AF_INET, netip.MustParseAddr("169.254.1.1")}, {unix.AF_INET6, netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")}} {
		packet := s.from(p, s.ext, family.gateway.Is6(), testutil.UDP{SrcPort: 1000, DstPort: 99})
		conn, err := traffic.OpenUDP(p.Host, netip.AddrPortFrom(packet.Dst, 99))
		if err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, fmt.Sprint("the gateway ", family.gateway, " to answer"), func() bool {
			if _, err := conn.Write([]byte("x")); err != nil && !errors.Is(err, unix.EHOSTUNREACH) {
				t.Fatal(err)
			}
			list, err := p.Netlink().NeighList(0, family.number)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(list, func(n netlink.Neigh) bool {
				return n.IP.Equal(family.gateway.AsSlice()) && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0
			})
		})
		conn.Close()
		s.expect(t, "a datagram of a pod that is not ready", s.shoot(t, p.Host, packet), false, at)
	}
}

// TestForgedNeighboursFillNothing: a pod speaks for 300 addresses that are not its own, by ARP and by neighbour discovery.
// Its own still resolve, and so do those of a pod that comes.
func TestForgedNeighboursFillNothing(t *testing.T) {
	testcluster.NeedsBPF(t, "ARP and neighbour discovery are not judged")
	s := newScene(t)
	s.AwaitPolicies(s.m, 0, 0)
	gateway := netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
	send(t, s.m, solicitation(s.m, gateway)) // the first link-local address it uses that is not its MAC's
	const forged = 300                       // the node has room for 1,024, and all tests of this machine together
	for i := range uint32(forged) {
		var a4 [4]byte
		binary.BigEndian.PutUint32(a4[:], 10<<24|77<<16|i+1)
		a6 := netip.MustParseAddr("fd00:77::").As16()
		binary.BigEndian.PutUint32(a6[12:], i+1)
		ll := netip.MustParseAddr("fe80::").As16()
		binary.BigEndian.PutUint32(ll[12:], i+1)
		send(t, s.m, arpRequest(s.m, netip.AddrFrom4(a4)), solicitation(s.m, netip.AddrFrom16(a6)), solicitation(s.m, netip.AddrFrom16(ll)))
	}
	if n := s.neighbours(s.m, unix.AF_INET); n > 2 {
		t.Errorf("the node has %d IPv4 neighbours behind the pod's interface", n)
	}
	if n := s.neighbours(s.m, unix.AF_INET6); n > 4 {
		t.Errorf("the node has %d IPv6 neighbours behind the pod's interface", n)
	}
	list, err := s.n1.Netlink().NeighList(s.m.IfIndex(), unix.AF_INET6)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		if n.IP.Equal(gateway.AsSlice()) {
			t.Error("the node takes the pod for its own gateway address:", n)
		}
	}
	fresh := s.Pod(s.n1, "fresh")
	for _, p := range []*lab.Pod{s.m, fresh} {
		s.Reach(s.ext.Host, p.Host, 0, true)
		s.Reach(p.Host, s.ext.Host, 0, true)
	}
}

// TestAnAddressOfThePodsLinkMakesNoNeighbour: a pod sends to link-local addresses that no machine has, whatever its policy. The node is a router,
// and the pod's link is the only one where they can be. It made an entry for each of them.
func TestAnAddressOfThePodsLinkMakesNoNeighbour(t *testing.T) {
	s := newScene(t)
	s.AwaitPolicies(s.m, 0, 0)
	datagram := testutil.Packet{L4: testutil.UDP{SrcPort: 1000, DstPort: 53}}
	report := testutil.Packet{L4: testutil.ICMP{Type: 132}, TTL: 255, Payload: make([]byte, 16)}
	for i, plain := range []testutil.Packet{datagram, report} {
		if i == 1 {
			s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress]}`)
			s.AwaitPolicies(s.m, 0, 1)
		}
		before := s.neighbours(s.m, unix.AF_INET6)
		for k := range uint16(150) {
			a := netip.MustParseAddr("fe80::7777:0:0").As16()
			a[13] = byte(i)
			binary.BigEndian.PutUint16(a[14:], k)
			plain.Src, plain.Dst = s.m.Addr6(), netip.AddrFrom16(a)
			send(t, s.m, frame(s.m, plain))
		}
		// The node looks up the neighbour for some redirects that it sends to the pod, at a rate of its own.
		if n := s.neighbours(s.m, unix.AF_INET6) - before; n > 30 {
			t.Errorf("%T: 150 packets have made %d neighbours", plain.L4, n)
		}
	}
}
