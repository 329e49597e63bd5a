package testcluster

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// NextLayout builds the agent as a release would be whose maps have another layout: with another version of it.
func NextLayout(t *testing.T) string {
	t.Helper()
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(filepath.Dir(string(module)), "pkg", "bpfmaps", "dir.go")
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
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "github.com/margay-project/margay/cmd/agent").CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v: %s", err, out)
	}
	return binary
}
