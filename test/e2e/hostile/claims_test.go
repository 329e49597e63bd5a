package hostile

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	claimants = 20
	claimFor  = 3 * time.Second
)

// claim writes a pod of the tenant with these addresses.
func (s *scene) claim(t *testing.T, name, node, metadata string, addrs []netip.Addr) {
	t.Helper()
	put(t, s.Dir, "pod-evil."+name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: evil, labels: {app: %[1]s}%s}
spec: {nodeName: %s, containers: [{name: main}]}
status: {phase: Running, podIP: %q, podIPs: [{ip: %[4]q}, {ip: %[5]q}]}
`, name, metadata, node, addrs[0], addrs[1]))
}

// TestClaimsInALoopDisturbNobody: pods of a tenant claim the addresses of somebody else's pod all the time, on this node, on others, older than
// it and as ones that are being deleted, and two pods of the tenant change their addresses with each other. The other pod keeps its packets and its
// policy. In the end both of the tenant's own pods are enforced with the addresses that the node routes to them.
func TestClaimsInALoopDisturbNobody(t *testing.T) {
	s := newScene(t)
	server, x := s.Pod(s.n1, "server"), s.Pod(s.n1, "evil/x")
	s.Policy("server", testcluster.OnlyOpen)
	s.AwaitPolicies(server, 1, 0)
	s.Policy("evil/m", `{podSelector: {}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.m, 1, 0)
	s.AwaitPolicies(x, 1, 0)
	honest := s.StartTraffic(s.a, server)
	turns, end := during(t, func(i int) {
		metadata := []string{"", `, creationTimestamp: "2001-01-01T00:00:00Z"`, `, deletionTimestamp: "2026-01-01T00:00:00Z"`}[i/3%3]
		s.claim(t, fmt.Sprint("claim", i%claimants), []string{"n1", "n2", "nowhere"}[i%3], metadata, server.Addrs())
		if i%16 == 0 {
			m, n := s.m, x
			if i%32 == 0 {
				m, n = x, s.m
			}
			s.claim(t, "m", "n1", "", m.Addrs())
			s.claim(t, "x", "n1", "", n.Addrs())
		}
	})
	for begun := time.Now(); time.Since(begun) < claimFor || turns.Load() < 3*claimants; {
		honest.Some("while its address is claimed")
	}
	end()
	s.removeAll(t, "pod-evil.claim")
	s.Declare(s.m)
	s.Declare(x)
	s.AwaitEndpoint(s.m)
	s.AwaitEndpoint(x)
	s.AwaitKnown(server)
	honest.Stop()
	s.Serve(x.Host, 80)
	s.Reach(s.a.Host, x.Host, 80, false)
	problem := func() bool {
		a, err := s.Agent(0).Ask("problems")
		return err == nil && len(a.Problems) == 0
	}
	testutil.WaitFor(t, soon, "no problem", problem)
	t.Logf("%d claims", turns.Load())
}
