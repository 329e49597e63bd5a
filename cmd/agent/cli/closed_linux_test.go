package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/pkg/inspect"
)

// TestAWrongNodeNameIsSaid has an agent that takes no pod for its node's: all of them are cut off.
func TestAWrongNodeNameIsSaid(t *testing.T) {
	n := newNode(t)
	n.launch("--node", "nosuch")
	var rows []inspect.EndpointRow
	n.ready(func() bool {
		out, code := n.cli("show", "endpoints", "-o", "json")
		if code != 0 || strings.Contains(out, "no agent runs") || strings.Contains(out, "does not answer") || strings.Contains(out, "has not read the datastore yet") {
			return false // the rows are of the maps
		}
		rows = decode[[]inspect.EndpointRow](t, out)
		return len(rows) == 2
	}, "a row for each interface")
	interfaces := []string{n.web.Iface(), n.db.Iface()}
	for _, row := range rows {
		if !slices.Contains(interfaces, row.Interface) || row.Ifindex == 0 || row.Name != "" || row.Condition != inspect.ConditionClosed {
			t.Errorf("row %+v, want a closed interface without a pod", row)
		}
	}
	n.wantReach(80, false)
	n.want(0, []string{n.web.Iface(), `closed: no pod of node "nosuch" is known for it`}, "show", "endpoints")
	const why = `2 interfaces of pods are closed`
	body := n.unready("policy")
	for what, said := range map[string]string{
		"/readyz":       body,
		"show problems": n.want(0, nil, "show", "problems"),
		"show status":   n.want(0, []string{"not ready"}, "show", "status"),
		"check":         n.want(1, []string{"PROBLEM", "not ready"}, "check"),
		"the log":       n.logged(),
	} {
		for _, words := range []string{why, `"nosuch"`, "node (2 pods)", n.web.Iface(), "--node"} {
			if !strings.Contains(strings.ReplaceAll(said, `\"`, `"`), words) {
				t.Errorf("%s: no %s in\n%s", what, words, said)
			}
		}
	}
}

func TestStatusCountsWhatIsEnforced(t *testing.T) {
	n := newNode(t)
	waits := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: waits, namespace: shop}\n" +
		"spec: {nodeName: node, containers: [{name: c}]}\nstatus: {podIPs: [{ip: 10.65.0.99}]}\n"
	if err := os.WriteFile(filepath.Join(n.dir, "waits.yaml"), []byte(waits), 0o600); err != nil {
		t.Fatal(err)
	}
	n.launch()
	n.ready(func() bool {
		out, code := n.cli("show", "status")
		return code == 0 && strings.Contains(out, "ready: policy of 2 of 3 endpoints is enforced, 1 waits for its interface")
	}, "the agent to count what is enforced")
}

func TestPinnedPolicyWithoutAnAgentIsNoGoodState(t *testing.T) {
	n := newNode(t)
	n.want(0, []string{"not running", "all is well"}, "check")
	n.start()
	n.want(0, []string{"all is well"}, "check")
	n.stop(syscall.SIGTERM)
	n.want(1, []string{"PROBLEM", "no agent answers on", "policy of an earlier one is enforced on 2 interfaces", "margay run", "margay cleanup"}, "check")
}
