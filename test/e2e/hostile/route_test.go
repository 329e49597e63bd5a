package hostile

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// A pod whose egress is closed cannot make its node write to others. The kernel answers options that it cannot read with an
// error, and sends that back along the route that the packet names: to the hop that the pod has put there, with what
// the packet carries. Where source routing is allowed, no packet of a pod goes by it either.
func TestNodesFollowNoRouteThatAPodNames(t *testing.T) {
	s := newScene(t)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress],
  egress: [{to: [{ipBlock: {cidr: 10.66.0.1/32}}]}]}`)
	s.AwaitPolicies(s.m, 0, 1)
	at := []*witness{s.watch(s.ext.Host), s.watch(s.c.Host), s.watch(s.b.Host)}
	for _, accept := range []string{"0", "1"} {
		t.Run("accept_source_route="+accept, func(t *testing.T) {
			for _, n := range []*lab.Node{s.n1, s.n2} {
				sysctl(t, n.Host, "ipv4/conf/all/accept_source_route", accept)
				awaitSearch(t, n, accept == "1")
			}
			s.play(t, s.sourceRouted(), at...)
		})
	}
	s.Agent(0).Dropped(s.m, 1, "source_route")
}

// awaitSearch waits until the rules of a node search packets for source routes, or do not, as its kernel needs it. In BPF mode all are
// searched always.
func awaitSearch(t *testing.T, n *lab.Node, search bool) {
	t.Helper()
	if !testcluster.IPTables() {
		return
	}
	testutil.WaitFor(t, soon, "the rules to follow the setting about source routes", func() bool {
		found := false
		for _, save := range []string{"iptables-legacy-save", "iptables-nft-save"} {
			rules, err := n.Run(t.Context(), "", save, "-t", "mangle")
			if err != nil {
				t.Fatal(err)
			}
			for rule := range strings.Lines(rules) {
				found = found || strings.HasPrefix(rule, "-A PREROUTING ") && strings.Contains(rule, "--bytecode")
			}
		}
		return found == search
	})
}

// sourceRouted are packets of m, for its node, that name others as hops.
func (s *scene) sourceRouted() (attacks []attack) {
	for _, option := range []byte{131, 137} {
		for _, to := range []*lab.Host{s.ext.Host, s.c.Host, s.b.Host} {
			hop := to.Addr4().AsSlice()
			behind := append(append([]byte{option, 11, 12}, s.m.Addr4().AsSlice()...), hop...) // as if both were behind it
			twice := append(behind, option, 3, 4)
			for what, options := range map[string][]byte{
				"a route to come":               append([]byte{option, 7, 4}, hop...),
				"a route that it came":          behind,
				"two routes, which is no route": twice,
			} {
				p := s.from(s.m, s.n1.Host, false, notDNS)
				p.Options = options
				attacks = append(attacks, attack{what: what + " by " + to.Name(), from: s.m, frames: bearing(s.m, p)})
				p.L4 = testutil.Raw(200)
				attacks = append(attacks, attack{what: what + " by " + to.Name() + ", of no protocol", from: s.m, frames: bearing(s.m, p)})
			}
		}
	}
	return attacks
}
