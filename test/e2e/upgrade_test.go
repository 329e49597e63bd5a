package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// nextLayout builds the agent as a release would be whose maps have another layout: with another version of it.
func nextLayout(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs("../../pkg/bpfmaps/dir.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^const Layout = \d+$`)
	if !version.Match(text) {
		t.Fatalf("%s does not say the version of the layout", source)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "dir.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string][]byte{changed: version.ReplaceAll(text, []byte("const Layout = 99")), overlay: replace} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "margay")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "../../cmd/agent").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v: %s", err, out)
	}
	return binary
}

// An agent whose maps have another layout takes over under traffic, and the former one after it again: what policy
// allows goes on, what it denies never passes, and nothing is left of the layout that is not used.
func TestAnAgentWithAnotherMapLayoutTakesOverUnderTraffic(t *testing.T) {
	testcluster.NeedsBPF(t, "there are no maps")
	c := newCluster(t, oneNode)
	next := nextLayout(t)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	a := c.Agent(0)
	tr := c.StartTraffic(client, server)
	for i, binary := range []string{next, "", next} {
		a.Kill()
		a.Binary = binary
		a.Start()
		tr.Some("after the agent was replaced")
		c.Reach(client.Host, server.Host, 81, false)
		layouts, err := filepath.Glob(filepath.Join(a.BPFFS, "margay", "v*"))
		if err != nil || len(layouts) != 1 {
			t.Errorf("after %d takeovers there are the layouts %v (%v), want one", i+1, layouts, err)
		}
		if others, err := bpfmaps.OtherLayouts(a.BPFFS, ""); (len(others) == 1) != (binary != "") || err != nil {
			t.Errorf("after %d takeovers there are other layouts than this tree's: %v (%v)", i+1, others, err)
		}
	}
	tr.Stop()
}
