package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

func TestVersionIsSaidInEveryForm(t *testing.T) {
	run := func(args ...string) string {
		var out bytes.Buffer
		if status := execute(t.Context(), args, &out, &out); status != 0 {
			t.Fatalf("margay %s: exit status %d: %s", strings.Join(args, " "), status, &out)
		}
		return out.String()
	}
	text := run("version")
	if flag := run("--version"); flag != text {
		t.Errorf("--version says %q, version %q", flag, text)
	}
	for _, word := range []string{"margay ", "commit ", runtime.Version(), mapLayout()} {
		if !strings.Contains(text, word) {
			t.Errorf("no %q in %s", word, text)
		}
	}
	var b build
	if err := json.Unmarshal([]byte(run("version", "-o", "json")), &b); err != nil {
		t.Fatal(err)
	}
	if b != thisBuild() || b.Version == "" || b.Commit == "" || b.Go != runtime.Version() {
		t.Errorf("version -o json says %+v, want %+v", b, thisBuild())
	}
}

func TestVersionIsWhatIsKnownOfIt(t *testing.T) {
	info := func(version string, settings ...string) *debug.BuildInfo {
		i := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for n := 0; n < len(settings); n += 2 {
			i.Settings = append(i.Settings, debug.BuildSetting{Key: settings[n], Value: settings[n+1]})
		}
		return i
	}
	const commit = "3ae8d90b1d0c7d5f2f3c4a5b6c7d8e9f00112233"
	for _, c := range []struct {
		what                string
		info                *debug.BuildInfo
		stamp, stampCommit  string
		version, wantCommit string
		modified            bool
	}{
		{"make with a tag", info("(devel)", "vcs.revision", "other"), "v1.2.3", commit, "v1.2.3", commit, false},
		{"make with a changed tree", info(""), "v1.2.3-4-g3ae8d90-dirty", commit, "v1.2.3-4-g3ae8d90-dirty", commit, true},
		{"make without a tag, with a changed tree", info(""), "", commit + "-dirty", "devel", commit, true},
		{"go build", info("(devel)", "vcs.revision", commit, "vcs.modified", "true"), "", "", "devel", commit, true},
		{"go install of a tag", info("v1.2.3"), "", "", "v1.2.3", "unknown", false},
		{"go install of a commit", info("v0.0.0-20261122044751-3ae8d90b1d0c"), "", "", "v0.0.0-20261122044751-3ae8d90b1d0c", "3ae8d90b1d0c", false},
		{"go install after a tag", info("v1.2.4-0.20261122044751-3ae8d90b1d0c+dirty"), "", "", "v1.2.4-0.20261122044751-3ae8d90b1d0c+dirty", "3ae8d90b1d0c", false},
		{"a tag with dashes", info("v1.2.3-rc-1"), "", "", "v1.2.3-rc-1", "unknown", false},
		{"nothing known", info(""), "", "", "devel", "unknown", false},
	} {
		got := buildOf(c.info, c.stamp, c.stampCommit)
		if got.Version != c.version || got.Commit != c.wantCommit || got.Modified != c.modified {
			t.Errorf("%s: %+v, want %s, %s, modified %v", c.what, got, c.version, c.wantCommit, c.modified)
		}
	}
}

// The linker ignores -X for a variable that is not there.
func TestStampedVariablesExist(t *testing.T) {
	script := exec.Command("scripts/stamp")
	script.Dir = "../../.."
	out, err := script.Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("cmd_version.go")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`-X ([^ ]+)\.([a-zA-Z]+)=[^ ]+`).FindAllStringSubmatch(string(out), -1)
	if len(flags) == 0 {
		testutil.Missing(t, fmt.Sprintf("scripts/stamp knows no commit here: %q", out))
	}
	for _, f := range flags {
		if want := reflect.TypeFor[build]().PkgPath(); f[1] != want {
			t.Errorf("scripts/stamp writes into package %s, the variables are in %s", f[1], want)
		}
		if !regexp.MustCompile(`(?m)^\t` + f[2] + ` +string`).Match(own) {
			t.Errorf("scripts/stamp writes %s, which cmd_version.go has not", f[2])
		}
	}
}

// `go install` names a program by its directory.
func TestInstalledCommandIsMargay(t *testing.T) {
	if testing.Short() {
		t.Skip("links the program")
	}
	dir := t.TempDir()
	install := exec.Command("go", "install", "../../margay")
	install.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "margay"), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "margay ") || !strings.Contains(string(out), runtime.Version()) {
		t.Errorf("margay --version: %v: %s", err, out)
	}
}
