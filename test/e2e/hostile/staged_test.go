package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// stage writes staged policies for the pod evil/m, each about an address of its own, that would deny TCP. The round makes them
// other than before.
func (s *scene) stage(policies, round int) {
	s.T.Helper()
	var b strings.Builder
	for i := range policies {
		fmt.Fprintf(&b, `---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: draft-%d, namespace: evil}
spec:
  {order: 1, selector: app == 'm', types: [Ingress], ingress: [
  {action: Allow, protocol: UDP, source: {nets: [172.16.%d.%d/32]}, destination: {ports: [%d]}}, {action: Deny, protocol: TCP}]}
`, i, i>>8, i&255, 1000+round)
	}
	s.Write("staged-evil", b.String())
}

// wouldDeny are the new flows to evil/m that its staged policies would have denied, and whether all of them are evaluated.
func (s *scene) wouldDeny() (flows uint64, evaluated bool) {
	s.T.Helper()
	answer, err := s.Agent(0).Ask("staged")
	if err != nil {
		s.T.Fatal(err)
	}
	for _, row := range answer.Staged {
		flows += row.WouldDeny
		if row.NotEvaluated != "" {
			return flows, false
		}
	}
	return flows, len(answer.Staged) > 0
}

// awaitWouldDeny waits until flows of both IP versions to evil/m are counted, and no more than there are. It makes some again and again: a
// busy agent leaves copies of packets out.
func (s *scene) awaitWouldDeny(t *testing.T) {
	t.Helper()
	made := uint64(0)
	testutil.WaitFor(t, soon, "flows that staged policies would deny", func() bool {
		s.Reach(s.a.Host, s.m.Host, 80, true)
		made += 2 // TCP by IPv4 and IPv6
		counted := uint64(0)
		for until := time.Now().Add(5 * time.Second); counted < 2 && time.Now().Before(until); {
			counted, _ = s.wouldDeny()
		}
		if counted > made {
			t.Fatalf("%d of %d flows are counted", counted, made)
		}
		return counted >= 2
	})
}

// stagedProblem reports whether the staged policies of evil/m are said not to be evaluated.
func (s *scene) stagedProblem() bool {
	s.T.Helper()
	for _, p := range s.problems() {
		if strings.Contains(p.Object, "evil/m") && strings.Contains(p.Reason, "staged policies are not evaluated") {
			return true
		}
	}
	return false
}

// A tenant writes 1,000 staged policies, more than are evaluated, and changes all of them again and again. Other pods' changes are
// enforced and their packets pass as before, the tenant's own enforced policy is enforced, and the limit is reported.
func TestStagedPoliciesOfOneTenantDisturbNobody(t *testing.T) {
	const many = 1000
	s := newScene(t, "--map-size", "set_names=4096", "--map-size", "class_sets=4096")
	onPort := func(app string, port int) string {
		return fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: shop}}}], ports: [{port: %d}, {port: %[2]d, protocol: UDP}]}]}`, app, port)
	}
	s.Policy("b", onPort("b", 80))
	s.Policy("evil/m", onPort("m", 80))
	s.AwaitPolicies(s.b, 1, 0)
	s.AwaitPolicies(s.m, 1, 0)
	for _, port := range []uint16{80, 81, 82} {
		s.Serve(s.b.Host, port)
		s.Serve(s.m.Host, port)
	}
	flow, err := traffic.StartUDPFlow(s.a.Host, netip.AddrPortFrom(s.b.Addr4(), 80), traffic.UDPFlowOptions{Interval: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}

	s.stage(10, 0)
	testutil.WaitFor(t, soon, "10 staged policies to be evaluated", func() bool { _, ok := s.wouldDeny(); return ok })
	s.awaitWouldDeny(t)

	s.stage(many, 0)
	testutil.WaitFor(t, soon, "the limit to be reported", s.stagedProblem)
	for round := 1; round <= 3; round++ {
		s.stage(many, round)
		open := uint16(81 + round%2) // besides port 80, for the flow that goes on
		s.Policy("b-more", onPort("b", int(open)))
		s.Policy("evil/m", onPort("m", int(open)))
		for _, p := range []*lab.Pod{s.b, s.m} {
			for _, addr := range p.Addrs() { // with iptables one IP version is written after the other
				awaitOpen(t, s.a, netip.AddrPortFrom(addr, open))
			}
			s.Reach(s.a.Host, p.Host, open, true)
			s.Reach(s.a.Host, p.Host, 81+82-open, false)
		}
		s.Reach(s.m.Host, s.b.Host, 80, false)
	}
	if ready, held, _ := s.status(t); !ready || held != "" {
		t.Errorf("ready %v, held back %q: staged policies hold nothing back", ready, held)
	}
	if got := flow.Stop(); got.Lost > 0 || got.Sent == 0 {
		t.Errorf("of another tenant's %d packets %d are lost", got.Sent, got.Lost)
	}

	s.stage(10, 0)
	testutil.WaitFor(t, soon, "the limit to be no problem any more", func() bool { return !s.stagedProblem() })
	testutil.WaitFor(t, soon, "10 staged policies to be evaluated again", func() bool { _, ok := s.wouldDeny(); return ok })
}

// awaitOpen waits until the pod gets an answer.
func awaitOpen(t *testing.T, from *lab.Pod, to netip.AddrPort) {
	t.Helper()
	testutil.WaitFor(t, soon, to.String()+" to answer", func() bool {
		return echo.ExchangeUDP(from.Host, to, []byte("open?"), 20*time.Millisecond).Outcome == echo.Connected
	})
}
