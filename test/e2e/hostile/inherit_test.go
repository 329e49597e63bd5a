package hostile

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// TestAnAddressBringsNoFlows: a pod that gets the address of one that has gone is not reached by answers to what that one has asked, and does
// not answer what was asked of it.
func TestAnAddressBringsNoFlows(t *testing.T) {
	testcluster.NeedsBPF(t, "connections of a pod that has gone are judged again, for the pod that has its address")
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
	s.Write("heirs", `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: heirs, namespace: evil}
spec:
  selector: app == 'heir'
  ingress: [{action: Deny, protocol: UDP, source: {ports: [99]}}, {action: Deny, protocol: UDPLite}, {action: Allow}]
  egress: [{action: Deny, protocol: UDP, source: {ports: [2000]}}, {action: Allow}]
`)
	s.Remove("pod-evil.former")
	if err := s.n1.DelPod(former); err != nil {
		t.Fatal(err)
	}
	heir, err := s.n1.AddPod("evil", "heir", former.Addrs()...)
	if err != nil {
		t.Fatal(err)
	}
	s.Declare(heir)
	s.AwaitPolicies(heir, 1, 1)
	inside = s.watch(heir.Host)
	for _, v6 := range []bool{false, true} {
		s.expect(t, "an answer that the former pod waits for", s.shoot(t, s.ext.Host, to(v6, answer)), false, inside)
		s.expect(t, "one without ports", s.shoot(t, s.ext.Host, to(v6, other)), false, inside)
		s.expect(t, "an answer to what was asked of the former pod", s.shoot(t, heir.Host, from(v6, answers)), false, outside)
		s.expect(t, "a question of the heir", s.shoot(t, heir.Host, from(v6, asked)), true, outside)
		s.expect(t, "its answer", s.shoot(t, s.ext.Host, to(v6, answer)), true, inside)
	}
}
