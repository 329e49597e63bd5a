// Package imports holds no code, only the test that packages import what docs/architecture.md lets them import.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/margay-project/margay/"

// pkg is what `go list` says of one package, its tests left out.
type pkg struct {
	ImportPath string
	Imports    []string // direct
	Deps       []string // direct and indirect
}

// layers are the packages of ours that each package under pkg/ may import. A new package needs a line here and one in
// docs/architecture.md.
var layers = map[string][]string{
	"pkg/selector":          {},
	"pkg/model":             {"pkg/selector"},
	"pkg/suggest":           {},
	"pkg/validate":          {"pkg/model", "pkg/selector", "pkg/suggest"},
	"pkg/validate/calico":   {"pkg/model", "pkg/selector", "pkg/validate"},
	"pkg/kinds":             {"pkg/model", "pkg/validate", "pkg/validate/calico", "pkg/validate/clusterpolicy"},
	"pkg/keyset":            {},
	"pkg/mapsize":           {},
	"pkg/labelindex":        {"pkg/keyset", "pkg/mapsize", "pkg/model", "pkg/selector"},
	"pkg/calc":              {"pkg/keyset", "pkg/labelindex", "pkg/mapsize", "pkg/model", "pkg/selector"},
	"pkg/compile":           {},
	"pkg/compile/ids":       {},
	"pkg/compile/classes":   {"bpf", "pkg/compile/ids", "pkg/model"},
	"pkg/compile/match":     {"bpf", "pkg/compile/classes", "pkg/model"},
	"pkg/compile/table":     {"bpf", "pkg/compile/classes", "pkg/compile/match", "pkg/model"},
	"pkg/compile/chains":    {"bpf", "pkg/compile/classes", "pkg/compile/match", "pkg/compile/table", "pkg/model"},
	"pkg/compile/plan":      {"bpf", "pkg/compile/classes", "pkg/compile/ids", "pkg/compile/match", "pkg/compile/table", "pkg/model", "pkg/staged"},
	"pkg/syncer":            {"pkg/mapsize", "pkg/model", "pkg/validate"},
	"pkg/syncer/directory":  {"pkg/kinds", "pkg/model", "pkg/syncer", "pkg/validate"},
	"pkg/syncer/etcd":       {"pkg/kinds", "pkg/model", "pkg/syncer", "pkg/validate"},
	"pkg/syncer/kubernetes": {"pkg/kinds", "pkg/kube", "pkg/model", "pkg/syncer", "pkg/validate"},
	"pkg/kube":              {},
	"pkg/config":            {"pkg/dataplane", "pkg/model", "pkg/suggest"},
	"pkg/health":            {},
	"pkg/metrics":           {"pkg/dataplane", "pkg/health", "pkg/kinds", "pkg/model", "pkg/syncer", "pkg/validate"},
	"pkg/events":            {"pkg/kinds", "pkg/validate"},
	"pkg/endpointstatus":    {"pkg/health", "pkg/model"},
	"pkg/explain":           {"pkg/model", "pkg/calc", "pkg/staged", "pkg/suggest"},
	"pkg/diff":              {"pkg/calc", "pkg/explain", "pkg/model", "pkg/verify"},
	"pkg/staged":            {"pkg/model"},
	"pkg/lint":              {"pkg/model", "pkg/calc", "pkg/compile/plan"},
	"pkg/bpfroom":           {},
	"pkg/bpfmaps":           {"bpf", "pkg/bpfroom", "pkg/delta"},
	"pkg/attach":            {"bpf", "pkg/bpfroom", "pkg/further"},
	"pkg/further":           {},
	"pkg/cgroup":            {},
	"pkg/delta":             {},
	"pkg/nfnl":              {},
	"pkg/ipsets":            {"pkg/nfnl"},
	"pkg/conntrack":         {"pkg/nfnl"},
	"pkg/shares":            {"pkg/conntrack", "pkg/further", "pkg/model"},
	"pkg/handover":          {"bpf", "pkg/bpfmaps", "pkg/conntrack", "pkg/dataplane", "pkg/shares"},
	"pkg/nflog":             {"pkg/nfnl"},
	"pkg/tcpreset":          {"pkg/conntrack", "pkg/ipheader", "pkg/nflog"},
	"pkg/ipheader":          {},
	"pkg/packetlog":         {"pkg/flows", "pkg/ipheader", "pkg/model", "pkg/nflog"},
	"pkg/lab":               {"pkg/lab/ns"},
	"pkg/lab/echo":          {"pkg/lab"},
	"pkg/lab/ns":            {},
	"pkg/demo":              {"demo", "pkg/bpfmaps", "pkg/dataplane", "pkg/explain", "pkg/inspect", "pkg/lab", "pkg/lab/echo", "pkg/lab/ns"},
	"pkg/marks":             {},
	"pkg/ruleset":           {},
	"pkg/ruleset/walk":      {"pkg/ruleset"},
	"pkg/iptables":          {"pkg/nfnl", "pkg/ruleset"},
	"pkg/flows":             {},
	"pkg/flowring":          {"bpf", "pkg/bpfmaps", "pkg/flows", "pkg/model"},
	"pkg/dataplane":         {"pkg/model"},
	"pkg/dataplane/record":  {"pkg/dataplane", "pkg/inspect", "pkg/model"},
	"pkg/dataplane/bpf": {"bpf", "pkg/attach", "pkg/bpfmaps", "pkg/compile/classes", "pkg/compile/match",
		"pkg/compile/plan", "pkg/compile/table", "pkg/conntrack", "pkg/dataplane", "pkg/dataplane/nodewatch", "pkg/dataplane/plans", "pkg/inspect",
		"pkg/inspect/ruletext", "pkg/model", "pkg/shares", "pkg/staged", "pkg/verify"},
	"pkg/verify": {"pkg/model"},
	"pkg/dataplane/iptables": {"bpf", "pkg/compile/chains", "pkg/compile/classes", "pkg/compile/ids", "pkg/compile/match", "pkg/compile/plan",
		"pkg/compile/table", "pkg/conntrack", "pkg/dataplane", "pkg/dataplane/plans", "pkg/flows", "pkg/further", "pkg/inspect", "pkg/inspect/ruletext", "pkg/ipsets",
		"pkg/iptables", "pkg/model", "pkg/packetlog", "pkg/ruleset", "pkg/ruleset/walk", "pkg/shares", "pkg/staged", "pkg/verify"},
	"pkg/dataplane/nodewatch": {"pkg/attach"},
	"pkg/dataplane/plans":     {"pkg/compile/classes", "pkg/compile/plan", "pkg/compile/table", "pkg/dataplane", "pkg/model"},
	"pkg/inspect/ruletext":    {"bpf", "pkg/compile/match", "pkg/inspect", "pkg/model"},
	"pkg/inspect":             {"pkg/explain", "pkg/flows", "pkg/model"},
	"pkg/inspect/rows":        {"pkg/calc", "pkg/inspect", "pkg/lint", "pkg/model", "pkg/validate"},
	"pkg/agent": {"pkg/inspect", "pkg/inspect/rows", "pkg/calc", "pkg/dataplane",
		"pkg/config", "pkg/endpointstatus", "pkg/events", "pkg/explain", "pkg/flows", "pkg/health", "pkg/lint", "pkg/metrics",
		"pkg/model", "pkg/staged", "pkg/syncer", "pkg/validate", "pkg/verify"},
	"pkg/node": {"pkg/agent", "pkg/attach", "pkg/bpfmaps", "pkg/cgroup", "pkg/config", "pkg/conntrack", "pkg/dataplane", "pkg/dataplane/bpf",
		"pkg/dataplane/iptables", "pkg/dataplane/nodewatch", "pkg/dataplane/record", "pkg/flowring", "pkg/flows", "pkg/further", "pkg/handover", "pkg/inspect",
		"pkg/ipsets", "pkg/iptables", "pkg/marks", "pkg/metrics", "pkg/model", "pkg/packetlog", "pkg/shares", "pkg/tcpreset", "pkg/verify"},
	"pkg/validate/clusterpolicy": {"pkg/model", "pkg/selector", "pkg/validate"},
}

// rule keeps some packages away from others.
type rule struct {
	why     string
	of      func(path string) bool // whom it binds; paths relative to the module
	never   []string               // import paths; one that ends in / stands for everything below it
	through bool                   // not through other packages either
}

var rules = []rule{
	{
		why: "pure packages do no I/O, read no clock, log nothing and share nothing between goroutines",
		of:  among("pkg/model", "pkg/selector", "pkg/suggest", "pkg/validate", "pkg/validate/", "pkg/kinds", "pkg/keyset", "pkg/labelindex", "pkg/mapsize", "pkg/calc", "pkg/compile/", "pkg/explain", "pkg/diff", "pkg/verify", "pkg/lint", "pkg/delta", "pkg/ruleset", "pkg/ruleset/", "pkg/further", "internal/oracle"),
		never: []string{"context", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
			"os/signal", "sync", "sync/atomic", "syscall", "time", "golang.org/x/sys/"},
	},
	{
		why: "configuration is pure; of package time it has durations",
		of:  among("pkg/config"),
		never: []string{"context", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
			"os/signal", "sync", "sync/atomic", "syscall", "golang.org/x/sys/"},
	},
	{
		why: "records of flows are the same whatever enforces policy; their times are given",
		of:  among("pkg/flows"),
		never: []string{"log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "os/signal", "syscall",
			"github.com/cilium/ebpf", "golang.org/x/sys/"},
	},
	{
		why: "only the dataplane's side and tools of tests touch the kernel",
		of: among("pkg/model", "pkg/selector", "pkg/validate", "pkg/calc", "pkg/compile/", "pkg/explain", "pkg/lint", "pkg/syncer",
			"pkg/syncer/directory", "pkg/syncer/etcd", "pkg/syncer/kubernetes", "pkg/agent", "pkg/inspect"),
		never: []string{"github.com/cilium/ebpf", "github.com/cilium/ebpf/", "github.com/vishvananda/", "golang.org/x/sys/"},
	},
	{
		why:     "what comes before the compiler builds without Linux",
		of:      among("pkg/model", "pkg/selector", "pkg/validate", "pkg/calc", "pkg/explain", "pkg/verify", "pkg/diff"),
		never:   []string{"github.com/cilium/ebpf", "github.com/cilium/ebpf/", "github.com/vishvananda/", module + "bpf"},
		through: true,
	},
	{
		why: "right of the validator nothing knows Kubernetes",
		of: among("pkg/ruleset", "pkg/ruleset/", "pkg/iptables",
			"bpf", "pkg/model", "pkg/selector", "pkg/calc", "pkg/compile/", "pkg/explain", "pkg/diff", "pkg/lint", "pkg/bpfmaps",
			"pkg/attach", "pkg/dataplane", "pkg/dataplane/bpf", "pkg/dataplane/record", "pkg/marks", "pkg/delta", "pkg/nfnl", "pkg/ipsets", "pkg/conntrack",
			"pkg/shares", "pkg/nflog", "pkg/tcpreset", "pkg/ipheader", "pkg/packetlog"),
		never:   []string{"k8s.io/", "sigs.k8s.io/"},
		through: true,
	},
	{
		why:     "objects are validated without a client",
		of:      among("pkg/validate", "pkg/kinds", "internal/oracle"),
		never:   []string{"k8s.io/client-go/"},
		through: true,
	},
	{
		why: "clients of a cluster are made and used in few places",
		of: func(path string) bool {
			return !slices.Contains([]string{"pkg/kube", "pkg/syncer/kubernetes", "pkg/events", "cmd/agent/cli", "internal/kubelet"}, path) &&
				!strings.HasPrefix(path, "bench/")
		},
		never: []string{"k8s.io/client-go/"},
	},
	{
		why:   "metrics have one home",
		of:    func(path string) bool { return path != "pkg/metrics" },
		never: []string{"github.com/prometheus/"},
	},
	{
		why:   "the command line is cmd/agent/cli's",
		of:    func(path string) bool { return path != "cmd/agent/cli" },
		never: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
	},
	{
		why: "testing is for tests, their tools and the corpus runner",
		of: func(path string) bool {
			return path != "internal/testutil" && path != "internal/policytest" && path != "internal/testcluster" && path != "internal/corpus" && path != "internal/labtest"
		},
		never: []string{"testing", "testing/", "pgregory.net/rapid", "github.com/google/go-cmp/"},
	},
	{
		why:   "internal/ holds tools of tests, which the product does not need",
		of:    product,
		never: []string{module + "internal/"},
	},
	{
		why:   "commands are imported by nobody",
		of:    func(path string) bool { return strings.HasPrefix(path, "pkg/") || path == "bpf" },
		never: []string{module + "cmd/"},
	},
	{
		why: "pods in namespaces are the demonstration's and the tests'",
		of: func(path string) bool {
			return product(path) && path != "pkg/demo" && !strings.HasPrefix(path, "pkg/lab")
		},
		never: []string{module + "pkg/lab", module + "pkg/lab/", module + "demo"},
	},
	{
		why:   "the demonstration is a command's",
		of:    func(path string) bool { return path != "cmd/agent/cli" },
		never: []string{module + "pkg/demo"},
	},
}

// product is what a released binary may consist of. Benchmarks and tests are not.
func product(path string) bool {
	return path == "bpf" || path == "demo" || strings.HasPrefix(path, "pkg/") || strings.HasPrefix(path, "cmd/")
}

// among binds the packages named; a name that ends in / stands for everything below it.
func among(paths ...string) func(string) bool {
	return func(path string) bool {
		return slices.ContainsFunc(paths, func(name string) bool { return matches(name)(path) })
	}
}

// TestPackagesImportOnlyWhatTheyMay holds the import table of docs/architecture.md against the tree.
func TestPackagesImportOnlyWhatTheyMay(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		for _, violation := range append(layering(path, p), broken(path, p)...) {
			t.Errorf("%s %s", path, violation)
		}
	}
}

// layering holds a package under pkg/ against layers, and keeps those of the standard library only to it.
func layering(path string, p pkg) (violations []string) {
	if !strings.HasPrefix(path, "pkg/") {
		return nil
	}
	may, known := layers[path]
	if !known {
		return []string{"is not in the import table: add what it may import to layers and to docs/architecture.md"}
	}
	for _, imported := range p.Imports {
		inside, ours := strings.CutPrefix(imported, module)
		switch {
		case ours && !slices.Contains(may, inside):
			violations = append(violations, "imports "+inside+", which is not in its line of layers; it may import "+text(may))
		case !ours && (path == "pkg/selector" || path == "pkg/model") && strings.Contains(strings.Split(imported, "/")[0], "."):
			violations = append(violations, "imports "+imported+"; it may import nothing outside the standard library but "+text(may))
		}
	}
	return violations
}

// TestEveryPermissionIsUsed: a permission that is not used says nothing about the design any more.
func TestEveryPermissionIsUsed(t *testing.T) {
	for _, p := range list(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		for _, permitted := range layers[path] {
			if !slices.Contains(p.Imports, module+permitted) {
				t.Errorf("%s does not import %s: take that out of its line of layers, and of docs/architecture.md", path, permitted)
			}
		}
	}
}

func text(list []string) string {
	if len(list) == 0 {
		return "no package of ours"
	}
	return strings.Join(list, ", ")
}

// broken holds a package against rules.
func broken(path string, p pkg) (violations []string) {
	for _, r := range rules {
		if !r.of(path) {
			continue
		}
		for _, never := range r.never {
			if i := slices.IndexFunc(p.Imports, matches(never)); i >= 0 {
				violations = append(violations, "imports "+p.Imports[i]+": "+r.why)
			} else if i := slices.IndexFunc(p.Deps, matches(never)); r.through && i >= 0 {
				violations = append(violations, "depends on "+p.Deps[i]+" through another package (go list -deps): "+r.why)
			}
		}
	}
	return violations
}

func matches(never string) func(string) bool {
	return func(imported string) bool {
		return imported == never || strings.HasSuffix(never, "/") && strings.HasPrefix(imported, never)
	}
}

// list asks the go command about every package of ours. It looks at the source tree itself too, so that a cached result
// of this test is only as old as the last change there.
func list(t *testing.T) (packages []pkg) {
	t.Helper()
	for _, top := range []string{"bench", "bpf", "cmd", "internal", "pkg", "test"} {
		if err := filepath.WalkDir("../../"+top, func(string, fs.DirEntry, error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = "../.."
	cmd.Env = append(cmd.Environ(), "GOOS=linux")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &stderr)
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		packages = append(packages, p)
	}
	if len(packages) < len(layers)/2 {
		t.Fatalf("%s: %d packages, fewer than in the import table", cmd, len(packages))
	}
	return packages
}

// TestTheTableCatchesViolations: each kind of violation is one.
func TestTheTableCatchesViolations(t *testing.T) {
	for _, c := range []struct {
		what string
		path string
		p    pkg
		want string // in the one violation; empty: none
	}{
		{"allowed", "pkg/calc", pkg{Imports: []string{"maps", module + "pkg/model"}}, ""},
		{"wrong layer", "pkg/calc", pkg{Imports: []string{module + "pkg/compile/plan"}}, "imports pkg/compile/plan"},
		{"unknown package", "pkg/news", pkg{}, "not in the import table"},
		{"outside the library", "pkg/selector", pkg{Imports: []string{"example.org/x"}}, "imports example.org/x"},
		{"clock", "pkg/compile/plan", pkg{Imports: []string{"time"}}, "imports time"},
		{"prefix", "pkg/agent", pkg{Imports: []string{"github.com/cilium/ebpf/link"}}, "imports github.com/cilium/ebpf/link"},
		{"not a prefix", "pkg/agent", pkg{Imports: []string{"github.com/cilium/ebpfs"}}, ""},
		{"indirect", "pkg/dataplane", pkg{Deps: []string{"k8s.io/api/core/v1"}}, "depends on k8s.io/api/core/v1"},
		{"indirect where only direct counts", "pkg/compile/plan", pkg{Deps: []string{"time"}}, ""},
		{"command line", "pkg/agent", pkg{Imports: []string{"github.com/spf13/cobra"}}, "imports github.com/spf13/cobra"},
		{"command line's own", "cmd/agent/cli", pkg{Imports: []string{"github.com/spf13/cobra"}}, ""},
		{"test tool in the product", "bpf", pkg{Imports: []string{module + "internal/news"}}, "internal/ holds tools of tests"},
		{"test tool in a command", "cmd/agent/cli", pkg{Imports: []string{module + "internal/testutil"}}, "internal/ holds tools of tests"},
		{"lab in a command", "cmd/agent/cli", pkg{Imports: []string{module + "pkg/lab/ns"}}, "pods in namespaces"},
		{"testing", "pkg/lab", pkg{Imports: []string{"testing"}}, "imports testing"},
	} {
		t.Run(c.what, func(t *testing.T) {
			got := append(layering(c.path, c.p), broken(c.path, c.p)...)
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)) {
				t.Errorf("%s importing %v: violations %q, want %q", c.path, c.p, got, c.want)
			}
		})
	}
}
