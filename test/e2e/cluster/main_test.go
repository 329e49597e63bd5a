package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/ns"
	"github.com/margay-project/margay/test/e2e/cluster/controlplane"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

const (
	// binEnv names the directory of the control plane's binaries, instead of where `make e2e` puts them.
	binEnv = "MARGAY_CLUSTER_BIN"
	// agentEnv names an agent to test instead of the one in this tree.
	agentEnv = "MARGAY_E2E_BINARY"
)

// TestMain removes what killed runs have left, before and after.
func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	remove, err := testcluster.OwnTablesLock() // also that of kube-proxy
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	clean := func() {
		if _, err := process.RemoveLeftovers(); err != nil {
			fmt.Fprintln(os.Stderr, "remove what earlier runs left:", err)
			code = max(code, 1)
		}
	}
	clean()
	defer clean()
	code = m.Run()
	if agentBuild.dir != "" {
		os.RemoveAll(agentBuild.dir)
	}
	names, err := ns.List()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	for _, name := range names {
		if strings.HasPrefix(name, ns.OwnPrefix()) {
			fmt.Fprintln(os.Stderr, "left behind:", name)
			code = max(code, 1)
		}
	}
	return code
}

// binaries returns the directory of the control plane's binaries. A machine without them, or without privileges, skips
// the test, or fails it where that is forbidden.
func binaries(t testing.TB) string {
	t.Helper()
	testutil.Privileged(t)
	testutil.RequireCommand(t, "iptables")
	testutil.RequireCommand(t, "nft")
	candidates := []string{testutil.Getenv(binEnv)}
	if candidates[0] == "" {
		candidates = []string{found(), "bin"}
	}
	var missing []string
	for _, dir := range candidates {
		missing = nil
		for _, name := range controlplane.Binaries {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				missing = append(missing, name)
			}
		}
		if missing == nil {
			return dir
		}
	}
	testutil.Missing(t, fmt.Sprintf("needs the control plane's binaries (%s); build them with make e2e-binaries", strings.Join(missing, ", ")))
	return ""
}

// found is where scripts/e2e-binaries puts, or has put, what it builds.
var found = sync.OnceValue(func() string {
	out, err := exec.Command("../../../scripts/e2e-binaries", "--find").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
})

var agentBuild struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// agentBinary returns the agent, built on first use.
func agentBinary(t testing.TB) string {
	t.Helper()
	b := &agentBuild
	b.once.Do(func() {
		if b.path = testutil.Getenv(agentEnv); b.path != "" {
			return
		}
		if b.dir, b.err = os.MkdirTemp("", "margay-e2e-"); b.err != nil {
			return
		}
		b.path = filepath.Join(b.dir, "margay")
		out, err := exec.Command("go", "build", "-C", "../../..", "-o", b.path, "./cmd/agent").CombinedOutput()
		if err != nil {
			b.err = fmt.Errorf("build the agent: %w: %s", err, out)
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}
