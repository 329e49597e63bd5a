package hostile

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// manyCombinations are network sets of evil that are each in other sets than all the rest, and a policy of evil/m whose rules make them
// so: bit i of a set's number is a label that rule i selects.
func manyCombinations(bits int) (sets, policy string) {
	var b, rules strings.Builder
	for i := range 1 << bits {
		fmt.Fprintf(&b, "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: s%d, namespace: evil, labels: {", i)
		for bit := range bits {
			fmt.Fprintf(&b, "b%d: \"%d\", ", bit, i>>bit&1)
		}
		fmt.Fprintf(&b, "}}\nspec: {nets: [172.20.%d.%d/32]}\n---\n", i>>8, i&255)
	}
	for bit := range bits {
		fmt.Fprintf(&rules, "{action: Allow, source: {selector: b%d == '1'}}, ", bit)
	}
	return b.String(), "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: m, namespace: evil}\nspec: {selector: app == 'm', types: [Ingress], ingress: [" + rules.String() + "]}\n"
}

// A tenant whose addresses are in more combinations of sets than map class_sets holds used to have addresses of others refused that came
// to be in further ones, and the agent was not ready.
func TestPoliciesOfOneTenantFillClassSets(t *testing.T) {
	testcluster.NeedsBPF(t, "the map is of that dataplane")
	s := newScene(t, "--map-size", "class_sets=2048")
	server, _ := s.Serve(s.b.Host, 80)
	s.Serve(s.m.Host, 80)
	sets, policy := manyCombinations(12)
	s.Write("crowd", sets)
	s.Write("policy-evil.m", policy)
	s.AwaitPolicies(s.m, 1, 0)
	ready := func(when string) {
		t.Helper()
		testutil.WaitFor(t, soon, "the agent to be ready "+when, func() bool {
			ready, held, _ := s.status(t)
			return ready && held == ""
		})
	}
	testutil.WaitFor(t, soon, "class_sets to be full", func() bool {
		var key, value []byte
		entries := 0
		for all := s.Agent(0).Maps().Map(bpf.MargayMapClassSets).Iterate(); all.Next(&key, &value); {
			entries++
		}
		return entries > 2000
	})
	ready("beside the tenant")
	if out, err := exec.Command(testcluster.Build(t), "verify", "--socket", s.Agent(0).Socket).CombinedOutput(); err != nil {
		t.Errorf("margay verify: %v: %s", err, out)
	}
	allow := func(app string) {
		t.Helper()
		s.Policy("from-"+app, fmt.Sprintf(`{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: %s}}}]}]}`, app))
	}
	check := func(a, c bool) {
		t.Helper()
		s.Reach(s.a.Host, s.b.Host, 80, a)
		s.Reach(s.c.Host, s.b.Host, 80, c)
	}
	allow("a")
	s.AwaitPolicies(s.b, 1, 0)
	check(true, false)
	allow("c")
	s.AwaitPolicies(s.b, 2, 0)
	check(true, true)
	ready("after changes of others")

	// The next agent does not find the sets of all addresses in the map, and policy has changed. What it allows as before is not disturbed.
	live, err := echo.StartStream(s.c.Host, server.Addr4(), echo.StreamOptions{Interval: time.Millisecond, Timeout: soon / 2})
	if err != nil {
		t.Fatal(err)
	}
	s.Agent(0).Terminate()
	s.Remove("policy-from-a")
	s.Agent(0).Start()
	s.AwaitPolicies(s.b, 1, 0)
	check(false, true)
	if r := live.Stop(); r.Connects != 1 || r.Errors != 0 {
		t.Errorf("a connection that policy allows was disturbed by the restart: %+v", r)
	}
	ready("after a restart")

	s.Remove("policy-evil.m")
	s.Remove("crowd")
	s.AwaitPolicies(s.m, 0, 0)
	s.Reach(s.a.Host, s.m.Host, 80, true)
	check(false, true)
	ready("without the tenant")
}
