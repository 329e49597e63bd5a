//go:build linux

package cli

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// Tools speak of what enforces, not of what a kernel as this one would enforce with; and an agent that is gone has left policy, though no
// map is pinned.
func TestToolsBesideAnAgentThatEnforcesWithIptables(t *testing.T) {
	n := newNode(t)
	n.want(0, []string{"dataplane  iptables: it is configured", "not running", "all is well"}, "check", "--dataplane", "iptables")
	n.launch("--dataplane", "iptables")
	n.ready(func() bool {
		out, code := n.cli("show", "status", "-o", "json")
		return code == 0 && decode[inspect.StatusReport](t, out).Ready
	}, "the agent to enforce")
	n.want(0, []string{"dataplane  iptables: the running agent enforces with iptables-", "mark bits 0xffff0000", "all is well"}, "check")
	n.wantReach(80, true)
	n.wantReach(81, false)
	drops := []string{"ingress", "denied by policy"}
	n.want(0, drops, "show", "drops")
	n.want(0, []string{n.db.Addr4().String() + ":80"}, "show", "flows")
	for _, verb := range []string{"drops", "flows"} {
		out, code := n.elsewhere("show", verb)
		if where := fmt.Sprintf("in another network namespace than this one: nsenter --net=/proc/%d/ns/net", n.agent.Process.Pid); code != 2 || !strings.Contains(out, where) {
			t.Errorf("show %s from another network namespace: exit status %d, no %q in\n%s", verb, code, where, out)
		}
	}
	socket := n.socket
	n.socket += "-not"
	other := []string{"no agent", "runs in this network namespace and does not answer there", "--instance"}
	n.want(1, other, "check")
	n.want(2, other, "show", "status")
	n.socket = socket

	verdicts, errs := n.monitor(t)
	n.ready(func() bool {
		n.reach(81)
		return strings.Contains(verdicts.String(), "deny")
	}, "the monitor to show verdicts")
	n.stop(syscall.SIGHUP)
	await(t, errs, "what is judged before the next agent runs is not recorded")
	for _, line := range []string{`"msg":"stopping","why":"hangup`, `"msg":"stopped; enforced policy stays in force`} {
		if !strings.Contains(n.logged(), line) {
			t.Errorf("the agent that was sent SIGHUP has not logged %s", line)
		}
	}
	n.wantReach(80, true)
	n.wantReach(81, false)
	left := []string{"no agent", "is enforced with iptables", "changes are not followed", "margay run", `margay cleanup --instance ""`}
	n.want(1, append(left, "PROBLEM"), "check")
	n.want(0, drops, "show", "drops")
	for _, verb := range [][]string{{"show", "status"}, {"show", "endpoints"}, {"explain", "shop/web", "shop/db:80"}, {"verify"}} {
		n.want(2, left, verb...)
	}
	n.want(0, []string{"still enforced with iptables", `margay cleanup --instance ""`}, "cleanup")
	n.wantReach(81, false)
	t.Setenv("MARGAY_INSTANCE", "live")
	var out strings.Builder
	code := -1
	err := n.machine.Do(func() error {
		code = execute(t.Context(), []string{"cleanup", "--instance", "", "--bpffs", n.bpffs, "--socket", n.socket}, &out, &out)
		return nil
	})
	if err != nil || code != 0 || !strings.Contains(out.String(), "IP sets") {
		t.Errorf("cleanup without an instance: %v, exit status %d\n%s", err, code, out.String())
	}
	n.wantReach(81, true)
}

// elsewhere is cli in a network namespace in which no agent enforces.
func (n *liveNode) elsewhere(args ...string) (out string, code int) {
	n.t.Helper()
	var all bytes.Buffer
	testutil.NetNS(n.t).Do(n.t, func() {
		code = execute(n.t.Context(), append(args, "--bpffs", n.bpffs, "--socket", n.socket, "--instance", "live"), &all, &all)
	})
	return all.String(), code
}

// An agent with BPF and a name leaves chains alone, which belong to no instance and may be those of an agent that is about to start again.
// Packets have to pass both, which an operator who looks at one of the two does not see.
func TestChainsBesideAnAgentWithANameAreReported(t *testing.T) {
	n := newNode(t)
	n.launch("--dataplane", "iptables")
	n.ready(func() bool { return n.isReady() }, "the agent to enforce with iptables")
	n.stop(syscall.SIGTERM)
	n.launch("--dataplane", "bpf")
	n.ready(func() bool { return n.isReady() }, "the agent to enforce with BPF")
	words := []string{"chains of iptables that another agent left are in force", "margay cleanup --instance"}
	n.want(1, append(words, "PROBLEM"), "check")
	for _, w := range words {
		if !strings.Contains(n.logged(), w) {
			t.Errorf("no %q in the log", w)
		}
	}
	n.stop(syscall.SIGTERM)
	n.want(0, []string{"still enforced with iptables"}, "cleanup")
}

func (n *liveNode) isReady() bool {
	out, code := n.cli("show", "status", "-o", "json")
	return code == 0 && decode[inspect.StatusReport](n.t, out).Ready
}
