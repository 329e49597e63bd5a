package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// A program ahead of ours may accept packets that policy denies. The kernel does not say whether it does, so the agent is not ready while it is
// there.
func TestAnAgentIsNotReadyWhileOthersRunBeforeItsPrograms(t *testing.T) {
	testcluster.NeedsBPF(t, "its programs can be overtaken on an interface")
	c := newCluster(t, oneNode)
	server := c.Pod(c.Node(0), "server")
	c.AwaitPolicies(server, 0, 0)
	agent := c.Agent(0)
	const says = "programs of other software run before Margay's on interfaces of pods ("
	shown := func() (ready, reason, problem bool) {
		status, err := agent.Ask("status")
		if err != nil || status.Status == nil {
			return false, false, false
		}
		problems, err := agent.Ask("problems")
		if err != nil {
			return false, false, false
		}
		for _, p := range problems.Problems {
			problem = problem || strings.HasPrefix(p.Object, "Node ") && strings.Contains(p.Reason, says)
		}
		return status.Status.Ready, slices.ContainsFunc(status.Status.NotReady, func(why string) bool { return strings.Contains(why, says) }), problem
	}
	testutil.WaitFor(t, 4*soon, "the agent to be ready", func() bool {
		ready, reason, problem := shown()
		return ready && !reason && !problem
	})
	_, length := agent.Warnings(t, 0)
	leave := passBefore(t, server)
	testutil.WaitFor(t, 4*soon, "the agent not to be ready for the program before its own", func() bool {
		ready, reason, problem := shown()
		return !ready && reason && problem
	})
	testutil.WaitFor(t, soon, "metrics not to count it as enforced", func() bool { // those of a busy agent are of the scrape before
		lines := scrape(t, c.Node(0))
		return strings.Contains(lines, "margay_endpoints{state=\"overtaken\"} 1\n") && strings.Contains(lines, "margay_endpoints{state=\"enforced\"} 0\n")
	})
	if lines, _ := agent.Warnings(t, length); !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, says) }) {
		t.Errorf("the log does not say it: %q", lines)
	}
	leave()
	testutil.WaitFor(t, 4*soon, "the agent to be ready once it has gone", func() bool {
		ready, reason, problem := shown()
		return ready && !reason && !problem
	})
}

// passBefore attaches a program before to_pod that accepts all packets, and returns what detaches it.
func passBefore(t *testing.T, p *lab.Pod) (leave func()) {
	t.Helper()
	pass, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pass.Close() })
	var l link.Link
	if err := p.Node().Do(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: p.IfIndex(), Program: pass, Attach: ebpf.AttachTCXEgress, Anchor: link.Head()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func() { l.Close() }
}
