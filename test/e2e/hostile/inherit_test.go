package hostile

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// TestAnAddressBringsNoFlows: a pod that gets the address of one that has gone is not reached by answers to what that one has asked, and does
// not answer what was asked of it. That also holds if no agent runs when it comes.
func TestAnAddressBringsNoFlows(t *testing.T) {
	for name, running := range map[string]bool{"the agent runs": true, "no agent runs": false} {
		t.Run(name, func(t *testing.T) { testInherit(t, running) })
	}
}

func testInherit(t *testing.T, running bool) {
	s := newScene(t)
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
	heir := s.inherit(t, former, running)
	inside = s.watch(heir.Host)
	for _, v6 := range []bool{false, true} {
		s.expect(t, "an answer that the former pod waits for", s.shoot(t, s.ext.Host, to(v6, answer)), false, inside)
		s.expect(t, "one without ports", s.shoot(t, s.ext.Host, to(v6, other)), false, inside)
		s.expect(t, "an answer to what was asked of the former pod", s.shoot(t, heir.Host, from(v6, answers)), false, outside)
		s.expect(t, "a question of the heir", s.shoot(t, heir.Host, from(v6, asked)), true, outside)
		s.expect(t, "its answer", s.shoot(t, s.ext.Host, to(v6, answer)), true, inside)
	}
}

// inherit replaces a pod by another one with its addresses, which does not get answers from port 99 and does not send from port 2000.
func (s *scene) inherit(t *testing.T, former *lab.Pod, running bool) *lab.Pod {
	t.Helper()
	s.Write("heirs", `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: heirs, namespace: evil}
spec:
  selector: app == 'heir'
  ingress: [{action: Deny, protocol: UDP, source: {ports: [99]}}, {action: Deny, protocol: UDPLite}, {action: Allow}]
  egress: [{action: Deny, protocol: UDP, source: {ports: [2000]}}, {action: Allow}]
`)
	if !running {
		s.Agent(0).Kill()
	}
	s.Remove("pod-evil.former")
	if err := s.n1.DelPod(former); err != nil {
		t.Fatal(err)
	}
	heir, err := s.n1.AddPod("evil", "heir", former.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	s.Declare(heir)
	if !running {
		s.Agent(0).Start()
	}
	s.AwaitPolicies(heir, 1, 1)
	return heir
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
	heir := s.inherit(t, former, true)
	inside = s.watch(heir.Host)
	play(heir, false)
}
