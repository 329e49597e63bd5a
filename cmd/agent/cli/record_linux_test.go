package cli

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/pkg/inspect"
)

// An agent whose dataplane only records stands on the same seam as the BPF one: tools answer, explain explains, and nothing
// is written to the kernel.
func TestADataplaneThatRecordsIsEnoughForTools(t *testing.T) {
	n := newNode(t)
	n.launch("--dataplane", "record")
	n.ready(func() bool {
		out, code := n.cli("show", "status", "-o", "json")
		return code == 0 && decode[inspect.StatusReport](t, out).Endpoints == 2
	}, "the agent to know two pods")
	n.want(0, []string{"record"}, "show", "status", "-o", "json")
	n.want(0, []string{"ready: policy of 2 endpoints is recorded and not enforced"}, "show", "status")
	n.want(0, []string{"shop/db", "shop/web", "recorded only"}, "show", "endpoints", "-o", "wide")
	n.want(0, []string{"Allow", "tcp", "app=web"}, "show", "rules", "shop/db")
	n.want(1, []string{"deny"}, "explain", "shop/web", "shop/db:81")
	for _, verb := range []string{"drops", "flows"} {
		n.want(2, []string{"enforces nothing (dataplane record)"}, "show", verb)
	}
	_, errs := n.monitor(t)
	await(t, errs, "enforces nothing (dataplane record), so there are no verdicts")
	n.wantReach(80, true)
	n.wantReach(81, true) // what policy denies
	if ours, err := filepath.Glob(filepath.Join(n.bpffs, "margay*")); err != nil || len(ours) != 0 {
		t.Errorf("in the BPF file system: %v (%v), want nothing of ours", ours, err)
	}
	n.stop(syscall.SIGTERM)
	for _, line := range []string{`"msg":"recorded: the policy of an endpoint","endpoint":"shop/db"`, "enforces nothing",
		`"msg":"in sync: policy is recorded and not enforced","endpoints":2`, `"msg":"stopped; nothing was enforced"`} {
		if !strings.Contains(n.logged(), line) {
			t.Errorf("no %s in the log", line)
		}
	}
	for _, text := range []string{"policy is enforced", "stays in force"} {
		if strings.Contains(n.logged(), text) {
			t.Errorf("%q in the log of a dataplane that enforces nothing", text)
		}
	}
}
