package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// verify runs margay verify against the agent of a node.
func verify(t *testing.T, p *testcluster.Process) (output string, status int) {
	t.Helper()
	out, err := exec.Command(testcluster.Build(t), "verify", "--socket", p.Socket).CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if failed != nil {
		status = failed.ExitCode()
	}
	return string(out), status
}

// awaitProven waits until margay verify finds everything as it should be.
func awaitProven(t *testing.T, agent *testcluster.Process, endpoints int, when string) {
	t.Helper()
	out, status := "", 0
	testutil.WaitFor(t, soon, "everything to be proven "+when, func() bool {
		out, status = verify(t, agent)
		return status == 0
	})
	if !strings.HasPrefix(out, fmt.Sprintf("proven: %d endpoints verified", endpoints)) {
		t.Errorf("%s: exit status %d:\n%s", when, status, out)
	}
}

// Whatever somebody does to what is pinned and attached is found by margay verify, and a new agent puts it right. Traffic goes on
// all the time: verification makes no verdict, and changes none.
func TestVerifyFindsHandMadeDamage(t *testing.T) {
	c := newCluster(t, oneNode, "--resync-every", "1h")
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", `{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
	c.AwaitPolicies(server, 1, 0)
	p := openPinned(t, c.Agent(0))
	p.client, p.server = client, server
	awaitProven(t, c.Agent(0), 2, "at first")
	for _, d := range damages {
		t.Run(d.what, func(t *testing.T) {
			if _, err := d.do(p); err != nil {
				t.Fatal(err)
			}
			out, status := verify(t, c.Agent(0))
			if status != 1 || !strings.HasPrefix(out, "differs: ") {
				t.Errorf("exit status %d:\n%s", status, out)
			}
			t.Log(out)
			c.Agent(0).Kill()
			c.Agent(0).Start()
			c.AwaitPolicies(server, 1, 0)
			awaitProven(t, c.Agent(0), 2, "after a restart")
		})
	}
}

// A verification makes no flow, no event and no count, and one of an agent that is gone says so.
func TestVerifyLeavesNoTrace(t *testing.T) {
	c := newCluster(t, oneNode)
	server := c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	p := openPinned(t, c.Agent(0))
	before, err := p.maps.RuleStats.Below(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	report, err := inspect.Client{Socket: c.Agent(0).Socket}.Verify(t.Context(), server.Name())
	if err != nil || !report.Proven || report.Endpoints != 1 || report.Questions == 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	after, err := p.maps.RuleStats.Below(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	for n, count := range after {
		if count != before[n] {
			t.Errorf("rule %d was counted: %+v, before %+v", n, count, before[n])
		}
	}
	if out, status := verify(t, c.Agent(0)); status != 0 {
		t.Errorf("exit status %d:\n%s", status, out)
	}
	c.Agent(0).Kill()
	if out, status := verify(t, c.Agent(0)); status != 2 || !strings.Contains(out, "no agent runs there") {
		t.Errorf("without an agent: exit status %d:\n%s", status, out)
	}
}
