package hostile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// A tenant's rules and network sets would have addresses in more combinations of sets than marks of 12 bits have room for. Its policy is refused, and said
// to be by name; policy of others that is new, and pods that are, are enforced as ever.
func TestPoliciesOfOneTenantLeaveRoomForCombinationsOfOthers(t *testing.T) {
	s := newScene(t, "--iptables-mark-mask", "0xfff00000")
	s.Serve(s.b.Host, 80)
	sets, policy := manyCombinations(9)
	s.Write("crowd", sets)
	s.Write("policy-evil.m", policy)
	if testcluster.IPTables() {
		testutil.WaitFor(t, soon, "the tenant's policy to be refused", func() bool {
			row := s.Row(s.m)
			return row != nil && strings.Contains(row.Error, "policies of namespace evil: over the limit")
		})
	} else {
		s.AwaitPolicies(s.m, 1, 0)
	}
	allow := func(app string, lists string) {
		t.Helper()
		s.Policy("from-"+app, fmt.Sprintf(`{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}%s]}]}`, app, lists))
	}
	allow("a", ", {ipBlock: {cidr: 172.20.0.0/17, except: [172.20.1.0/25]}}, {ipBlock: {cidr: 172.20.0.128/25}}")
	s.AwaitPolicies(s.b, 1, 0)
	s.Reach(s.a.Host, s.b.Host, 80, true)
	s.Reach(s.c.Host, s.b.Host, 80, false)
	allow("c", "")
	s.AwaitPolicies(s.b, 2, 0)
	s.Reach(s.c.Host, s.b.Host, 80, true)

	s.Remove("crowd")
	s.AwaitPolicies(s.m, 1, 0)
	testutil.WaitFor(t, soon, "the agent to be ready without the network sets", func() bool {
		ready, held, _ := s.status(t)
		return ready && held == ""
	})
	s.Reach(s.a.Host, s.b.Host, 80, true)
}
