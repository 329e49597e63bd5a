package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// replacement is how a pod is replaced by another one with its addresses.
type replacement struct {
	running bool     // the agent runs; otherwise another one starts afterwards
	number  bool     // the new pod's interface has the number of the former one's
	flags   []string // of all agents
	next    []string // of the agent that comes afterwards, beside them
	binary  string   // of that agent; empty: the same
}

// TestAnAddressBringsNoFlows: a pod that gets the address of one that has gone is not reached by answers to what that one has asked, and does
// not answer what was asked of it. That also holds if no agent runs when it comes.
func TestAnAddressBringsNoFlows(t *testing.T) {
	for name, r := range map[string]replacement{"the agent runs": {running: true}, "no agent runs": {},
		"the agent runs, the same interface number": {running: true, number: true}, "no agent runs, the same interface number": {number: true}} {
		t.Run(name, func(t *testing.T) { testInherit(t, r) })
	}
}

// TestAnAddressBringsNoFlowsInASwitch: the same if the pod comes while no agent runs, and the next agent enforces with the other dataplane.
func TestAnAddressBringsNoFlowsInASwitch(t *testing.T) {
	for i, from := range switched {
		to := switched[1-i]
		for name, r := range map[string]replacement{"": {}, ", the same interface number": {number: true},
			", before it": {running: true}, ", existing connections kept": {flags: []string{"--existing-connections", "keep"}}} {
			r.flags, r.next = append(r.flags, from...), to
			t.Run("from "+from[1]+" to "+to[1]+name, func(t *testing.T) { testInherit(t, r) })
		}
	}
}

// TestAnAddressBringsNoFlowsToAnotherMapLayout: the same if the next agent cannot read the maps.
func TestAnAddressBringsNoFlowsToAnotherMapLayout(t *testing.T) {
	testcluster.NeedsBPF(t, "there are no maps")
	binary := testcluster.NextLayout(t)
	for i, mode := range switched {
		t.Run(mode[1], func(t *testing.T) { testInherit(t, replacement{number: i == 1, next: mode, binary: binary}) })
	}
}

func testInherit(t *testing.T, r replacement) {
	s := newScene(t, append(slices.Clone(r.flags), "--mid-flow-grace", "0s")...)
	s.followed()
	outside := s.watch(s.ext.Host)
	former := s.Pod(s.n1, "evil/former")
	inside := s.watch(former.Host)
	to := func(v6 bool, proto testutil.Layer4) testutil.Packet {
		return testutil.Packet{Src: s.ext.Addr(v6), Dst: former.Addr(v6), L4: proto}
	}
	from := func(v6 bool, proto testutil.Layer4) testutil.Packet {
		return testutil.Packet{Src: former.Addr(v6), Dst: s.ext.Addr(v6), L4: proto}
	}
	asked, answer := testutil.UDP{SrcPort: 1000, DstPort: 99}, testutil.UDP{SrcPort: 99, DstPort: 1000}
	asks, answers := testutil.UDP{SrcPort: 98, DstPort: 2000}, testutil.UDP{SrcPort: 2000, DstPort: 98}
	other := testutil.Raw(unix.IPPROTO_UDPLITE)
	for _, v6 := range []bool{false, true} {
		s.expect(t, "a question of the former pod", s.shoot(t, former.Host, from(v6, asked)), true, outside)
		s.expect(t, "its answer", s.shoot(t, s.ext.Host, to(v6, answer)), true, inside)
		s.expect(t, "a question of the former pod, without ports", s.shoot(t, former.Host, from(v6, other)), true, outside)
		s.expect(t, "a question to the former pod", s.shoot(t, s.ext.Host, to(v6, asks)), true, inside)
		s.expect(t, "the former pod's answer", s.shoot(t, former.Host, from(v6, answers)), true, outside)
	}
	s.connect(t, former, inside, outside)
	heir := s.inherit(t, former, r)
	if r.running && r.next != nil {
		s.switchTo(s.Agent(0).Flags, r.next)
		s.AwaitPolicies(heir, 1, 1)
	}
	inside = s.watch(heir.Host)
	for _, v6 := range []bool{false, true} {
		data := func(src, dst uint16) testutil.TCP {
			return testutil.TCP{SrcPort: src, DstPort: dst, Flags: testutil.PSH | testutil.ACK, Seq: uint32(101 + tokenSize), Ack: uint32(101 + 2*tokenSize)}
		}
		s.expect(t, "TCP that the former pod waits for", s.shoot(t, s.ext.Host, to(v6, data(99, 1001))), false, inside)
		s.expect(t, "TCP of a connection to the former pod", s.shoot(t, heir.Host, from(v6, data(2000, 97))), false, outside)
		s.expect(t, "an answer that the former pod waits for", s.shoot(t, s.ext.Host, to(v6, answer)), false, inside)
		s.expect(t, "one without ports", s.shoot(t, s.ext.Host, to(v6, other)), false, inside)
		s.expect(t, "an answer to what was asked of the former pod", s.shoot(t, heir.Host, from(v6, answers)), false, outside)
		s.expect(t, "a question of the heir", s.shoot(t, heir.Host, from(v6, asked)), true, outside)
		s.expect(t, "its answer", s.shoot(t, s.ext.Host, to(v6, answer)), true, inside)
	}
}

// connect has a pod and the host outside open a connection to each other, by packets alone.
func (s *scene) connect(t *testing.T, pod *lab.Pod, inside, outside *witness) {
	t.Helper()
	s.sendNoResets(t, pod.Host)
	s.sendNoResets(t, s.ext.Host)
	at := map[*lab.Host]*witness{pod.Host: inside, s.ext.Host: outside}
	for _, v6 := range []bool{false, true} {
		for _, c := range []struct {
			from, to     *lab.Host
			sport, dport uint16
		}{{pod.Host, s.ext.Host, 1001, 99}, {s.ext.Host, pod.Host, 97, 2000}} {
			send := func(src, dst *lab.Host, l4 testutil.TCP) {
				s.expect(t, fmt.Sprintf("%+v", l4), s.shoot(t, src, testutil.Packet{Src: src.Addr(v6), Dst: dst.Addr(v6), L4: l4}), true, at[dst])
			}
			send(c.from, c.to, testutil.TCP{SrcPort: c.sport, DstPort: c.dport, Flags: testutil.SYN, Seq: 100})
			send(c.to, c.from, testutil.TCP{SrcPort: c.dport, DstPort: c.sport, Flags: testutil.SYN | testutil.ACK, Seq: 100, Ack: 101})
			next := uint32(101 + tokenSize)
			send(c.from, c.to, testutil.TCP{SrcPort: c.sport, DstPort: c.dport, Flags: testutil.ACK, Seq: next, Ack: next})
		}
	}
}

// sendNoResets keeps the kernel of a host from resetting connections that it does not know.
func (s *scene) sendNoResets(t *testing.T, h *lab.Host) {
	t.Helper()
	for _, iptables := range []string{"iptables", "ip6tables"} {
		if _, err := h.Run(context.Background(), "", iptables, "-A", "OUTPUT", "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "DROP"); err != nil {
			t.Fatal(err)
		}
	}
}

// inherit replaces a pod by another one with its addresses, which does not get answers from port 99 and does not send from port 2000.
func (s *scene) inherit(t *testing.T, former *lab.Pod, r replacement) *lab.Pod {
	t.Helper()
	s.Write("heirs", `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: heirs, namespace: evil}
spec:
  selector: app == 'heir'
  ingress: [{action: Deny, protocol: UDP, source: {ports: [99]}}, {action: Deny, protocol: TCP, source: {ports: [99]}}, {action: Deny, protocol: UDPLite}, {action: Allow}]
  egress: [{action: Deny, protocol: UDP, source: {ports: [2000]}}, {action: Deny, protocol: TCP, source: {ports: [2000]}}, {action: Allow}]
`)
	if !r.running {
		s.Agent(0).Kill()
		s.Agent(0).Flags, s.Agent(0).Binary = append(slices.Clone(s.Agent(0).Flags), r.next...), r.binary
	}
	s.Remove("pod-evil.former")
	heir, err := s.replace(former, r.number)
	if err != nil {
		t.Fatal(err)
	}
	s.sendNoResets(t, heir.Host)
	s.Declare(heir)
	if !r.running {
		s.Agent(0).Start()
	}
	s.AwaitPolicies(heir, 1, 1)
	return heir
}

// replace makes the pod evil/heir with the addresses of one that goes.
func (s *scene) replace(former *lab.Pod, number bool) (*lab.Pod, error) {
	if number {
		return s.n1.ReplacePod(former, "evil", "heir", former.Addrs()...)
	}
	if err := s.n1.DelPod(former); err != nil {
		return nil, err
	}
	return s.n1.AddPod("evil", "heir", former.Addrs()...)
}

// TestAnAddressBringsNoTranslatedFlows: the same of flows whose other end knows the former pod by the node's address.
func TestAnAddressBringsNoTranslatedFlows(t *testing.T) {
	s := newScene(t)
	outside := s.watch(s.ext.Host)
	former := s.Pod(s.n1, "evil/former")
	inside := s.watch(former.Host)
	for v6, iptables := range map[bool]string{false: "iptables", true: "ip6tables"} {
		for _, rule := range [][]string{
			{"POSTROUTING", "-s", former.Addr(v6).String(), "-p", "udp", "--dport", "99", "-j", "MASQUERADE"},
			{"PREROUTING", "-d", s.n1.Addr(v6).String(), "-p", "udp", "--dport", "2000", "-j", "DNAT", "--to-destination", former.Addr(v6).String()},
		} {
			if _, err := s.n1.Run(context.Background(), "", iptables, slices.Concat([]string{"-t", "nat", "-A"}, rule)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	packet := func(src, dst netip.Addr, sport, dport uint16) testutil.Packet {
		return testutil.Packet{Src: src, Dst: dst, L4: testutil.UDP{SrcPort: sport, DstPort: dport}}
	}
	play := func(pod *lab.Pod, answers bool) {
		for _, v6 := range []bool{false, true} {
			ext, node := s.ext.Addr(v6), s.n1.Addr(v6)
			if answers {
				s.expect(t, "a question of the former pod", s.shoot(t, pod.Host, packet(pod.Addr(v6), ext, 1000, 99)), true, outside)
				s.expect(t, "a question to the former pod", s.shoot(t, s.ext.Host, packet(ext, node, 98, 2000)), true, inside)
			}
			s.expect(t, "an answer to the former pod", s.shoot(t, s.ext.Host, packet(ext, node, 99, 1000)), answers, inside)
			s.expect(t, "an answer of the former pod", s.shoot(t, pod.Host, packet(pod.Addr(v6), ext, 2000, 98)), answers, outside)
		}
	}
	play(former, true)
	heir := s.inherit(t, former, replacement{running: true})
	inside = s.watch(heir.Host)
	play(heir, false)
}
