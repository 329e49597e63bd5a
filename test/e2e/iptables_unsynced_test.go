package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// nowhere is an API server that cannot be reached.
const nowhere = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": "x"}}],
	"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`

// An agent that starts while its datastore cannot be reached keeps the chains of the agent before: what others flush is there again soon.
func TestFlushedRulesComeBackWithoutADatastore(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		restore := "iptables-" + flags[len(flags)-1] + "-restore"
		c := newCluster(t, oneNode, flags...)
		server, client := c.Pod(c.Node(0), "server"), c.Pod(c.Node(0), "client")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		open, _ := c.Serve(server.Host, openPort)
		closed, _ := c.Serve(server.Host, closedPort)
		a := c.Agent(0)
		a.Kill()
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(kubeconfig, []byte(nowhere), 0o600); err != nil {
			t.Fatal(err)
		}
		a.Flags = append(a.Flags[:len(a.Flags):len(a.Flags)], "--datastore", "kubernetes", "--kubeconfig", kubeconfig)
		a.Launch()
		testutil.WaitFor(t, soon, "the agent to answer", func() bool { _, err := a.Ask("status"); return err == nil })
		for _, what := range []string{"at once", "again"} {
			_, logged := a.Warnings(t, 0)
			if out, err := c.Node(0).Run(t.Context(), "*mangle\n-F\nCOMMIT\n*filter\n-F\nCOMMIT\n", restore, "--noflush"); err != nil {
				t.Fatal(err, out)
			}
			begun := time.Now()
			testutil.WaitFor(t, soon, "the agent to repair and say so", func() bool {
				lines, _ := a.Warnings(t, logged)
				text := strings.Join(lines, "")
				return strings.Contains(text, "IPv4 table mangle") && strings.Contains(text, "IPv4 table filter")
			})
			t.Logf("%s: repaired after %v", what, time.Since(begun))
			p, err := traffic.StartProber(client.Host, traffic.ProberOptions{Interval: 5 * time.Millisecond},
				traffic.Target{Addr: open.Addr4(), Allowed: true}, traffic.Target{Addr: closed.Addr4()})
			if err != nil {
				t.Fatal(err)
			}
			testutil.WaitFor(t, soon, "50 attempts at each target", func() bool {
				return !slices.ContainsFunc(p.Results(), func(r traffic.ProbeResult) bool { return r.Attempts < 50 })
			})
			for i, r := range p.Stop() {
				if r.Wrong > 0 || r.Attempts == 0 {
					t.Errorf("%s: target %d: %d of %d attempts went wrong after the repair", what, i, r.Wrong, r.Attempts)
				}
			}
		}
	})
}
