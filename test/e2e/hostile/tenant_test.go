package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// manyBlocks is the spec of an ingress policy of that many rules, each about an address of its own.
func manyBlocks(app string, rules int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [", app)
	for i := range rules {
		fmt.Fprintf(&b, "{from: [{ipBlock: {cidr: 172.16.%d.%d/32}}]},\n", i>>8, i&255)
	}
	return b.String() + "]}"
}

// status is one line of what an agent says of itself.
func (s *scene) status(t *testing.T) (ready bool, held string, problems int) {
	t.Helper()
	a, err := s.Agent(0).Ask("status")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Agent(0).Ask("problems")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range p.Problems {
		if strings.Contains(row.Object, "evil/m") {
			problems++
		}
	}
	return a.Status.Ready, a.Status.Held, problems
}

// wantHeld waits until the pod evil/m is said to be held back, and the agent is ready all the same.
func (s *scene) wantHeld(t *testing.T, what string) {
	t.Helper()
	testutil.WaitFor(t, soon, "evil/m to be held back", func() bool {
		row := s.Row(s.m)
		return row != nil && strings.HasPrefix(row.Error, what)
	})
	testutil.WaitFor(t, soon, "the agent to be ready, naming evil/m", func() bool {
		ready, held, problems := s.status(t)
		return ready && strings.Contains(held, "evil/m") && problems > 0
	})
}

// Policies of one tenant that are more than the node's maps hold used to stop every later change of everybody, and on a
// first start nothing was attached.
func TestPoliciesOfOneTenantStopNoOtherChange(t *testing.T) {
	s := newScene(t, "--map-size", "set_names=4096", "--map-size", "class_sets=4096")
	s.Serve(s.b.Host, 80)
	s.Serve(s.a.Host, 80)
	s.Serve(s.m.Host, 80)
	s.Policy("evil/m", manyBlocks("m", 3))
	s.AwaitPolicies(s.m, 1, 0)
	s.Policy("evil/m", manyBlocks("m", 9000))
	start := time.Now()
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	t.Logf("a change of another tenant took %v", time.Since(start))
	s.Reach(s.a.Host, s.b.Host, 80, false)
	s.Reach(s.b.Host, s.a.Host, 80, true)
	s.wantHeld(t, "keeps its last policy: ")

	// The same on a node where nothing is enforced yet.
	agent := s.Agent(0)
	agent.Terminate()
	if out, err := s.n1.Run(context.Background(), "", testcluster.Build(t), "cleanup", "--bpffs", agent.BPFFS); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	agent.Start()
	s.wantHeld(t, "closed: ")
	s.Reach(s.a.Host, s.b.Host, 80, false)
	s.Reach(s.b.Host, s.a.Host, 80, true)
	s.Reach(s.a.Host, s.m.Host, 80, false)

	start = time.Now()
	s.Remove("policy-evil.m")
	s.AwaitEndpoint(s.m)
	t.Logf("evil/m was held back for %v after its policy had gone", time.Since(start))
	s.Reach(s.a.Host, s.m.Host, 80, true)
	if ready, held, problems := s.status(t); !ready || held != "" || problems != 0 {
		t.Errorf("ready %v, held back %q, %d problems in the end", ready, held, problems)
	}
}

// An API server stores 780,000 rules in one object of 1.5 MiB: each is two bytes. A policy of more than the kernel has room for allows nothing, and
// concerns no other pod.
func TestPoliciesOfOneTenantWithVeryManyRulesConcernNoOther(t *testing.T) {
	s := newScene(t)
	s.Serve(s.b.Host, 80)
	s.Serve(s.m.Host, 80)
	s.Reach(s.a.Host, s.m.Host, 80, true)
	s.Policy("evil/m", "{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress], ingress: ["+strings.Repeat("{},\n", 100_000)+"]}")
	start := time.Now()
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	t.Logf("a change of another tenant took %v", time.Since(start))
	s.Reach(s.a.Host, s.b.Host, 80, false)
	s.AwaitPolicies(s.m, 1, 0)
	s.Reach(s.a.Host, s.m.Host, 80, false)
	p, err := s.Agent(0).Ask("problems")
	if err != nil {
		t.Fatal(err)
	}
	said := false
	for _, row := range p.Problems {
		said = said || strings.Contains(row.Object, "evil/m") && strings.Contains(fmt.Sprint(row), "100000 rules")
	}
	if ready, _, _ := s.status(t); !ready || !said {
		t.Errorf("ready %v, problems %+v", ready, p.Problems)
	}
}
