package hostile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// manyPrefixes are namespaces with a network set of so many prefixes each.
func manyPrefixes(namespaces, each int) string {
	var b strings.Builder
	for i := range namespaces {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: evil%d}\n---\n", i)
		fmt.Fprintf(&b, "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: s, namespace: evil%d, labels: {crowd: in}}\nspec: {nets: [", i)
		for n := range each {
			fmt.Fprintf(&b, "172.%d.%d.%d, ", 20+i, n>>8, n&255)
		}
		b.WriteString("]}\n---\n")
	}
	return strings.ReplaceAll(b.String(), ", ]", "]")
}

// A tenant with several namespaces used to fill a map of addresses with network sets: entries of others were refused that came later, and
// the agent was not ready.
func TestPoliciesOfOneTenantFillTheAddresses(t *testing.T) {
	testcluster.NeedsBPF(t, "the maps are of that dataplane")
	s := newScene(t, "--map-size", "ip4_host=4096")
	s.Serve(s.b.Host, 80)
	s.Serve(s.m.Host, 80)
	s.Write("crowd", manyPrefixes(8, 600))
	s.Write("policy-evil.m", "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: m, namespace: evil}\n"+
		"spec: {selector: app == 'm', types: [Ingress], ingress: [{action: Allow, source: {selector: has(crowd), namespaceSelector: all()}}]}\n")
	s.AwaitPolicies(s.m, 1, 0)
	ready := func(when string) {
		t.Helper()
		testutil.WaitFor(t, soon, "the agent to be ready "+when, func() bool {
			ready, held, _ := s.status(t)
			return ready && held == ""
		})
	}
	ready("beside the tenant")

	// Others have room: for pods that their policy selects, and for network sets of theirs.
	s.Policy("from-a", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}`)
	s.AwaitPolicies(s.b, 1, 0)
	s.Reach(s.a.Host, s.b.Host, 80, true)
	s.Reach(s.c.Host, s.b.Host, 80, false)
	s.Write("mine", fmt.Sprintf("apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: mine, namespace: shop, labels: {of: c}}\nspec: {nets: [%s/32, %s/128]}\n---\n"+
		"apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: mine, namespace: shop}\n"+
		"spec: {selector: app == 'b', types: [Ingress], ingress: [{action: Allow, source: {selector: of == 'c'}}]}\n", s.c.Addr4(), s.c.Addr6()))
	s.AwaitPolicies(s.b, 2, 0)
	s.Reach(s.c.Host, s.b.Host, 80, true)
	ready("after changes of others")
	if n := len(s.leftOut()); n != 7 {
		t.Errorf("%d network sets of the tenant are left out", n)
	}

	s.Write("crowd", manyPrefixes(8, 100))
	s.AwaitPolicies(s.m, 1, 0)
	s.Reach(s.a.Host, s.m.Host, 80, false)
	testutil.WaitFor(t, soon, "nothing to be left out", func() bool { return len(s.leftOut()) == 0 })
	ready("beside smaller network sets")
}

// leftOut are the network sets that the agent reports as left out.
func (s *scene) leftOut() (names []string) {
	for _, p := range s.problems() {
		if strings.Contains(p.Object, "NetworkSet") && strings.Contains(p.Reason, "this one is left out") {
			names = append(names, p.Object)
		}
	}
	return names
}
