package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// netpol is a policy of the namespace shop that selects no pod.
func netpol(name, spec string) string {
	return fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s, namespace: shop}
spec: {podSelector: {matchLabels: {app: nobody}}, %s}
---
`, name, spec)
}

// pod is a pod of the namespace shop on a node.
func pod(name, node, status string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop}
spec: {nodeName: %s, containers: [{name: c}]}
status: {phase: Running, %s}
---
`, name, node, status)
}

// badInput is something in the directory that is not as it should be, and all that the agent has to say of it. Rows are
// compared up to the directory before their object; of reasons, a part is enough.
type badInput struct {
	what  string
	text  string                  // of the file x.yaml
	other string                  // of the file y.yaml, if there is one
	place func(path string) error // what is x.yaml, if it is no file
	want  []inspect.ProblemRow
}

const (
	rejected = "rejected"
	warning  = "warning"
	leftOut  = "rules left out"
)

// row is a problem; a policy's object is that of netpol.
func row(severity, object, field, reason string) []inspect.ProblemRow {
	return []inspect.ProblemRow{{Severity: severity, Object: object, Field: field, Reason: reason}}
}

func ofPolicy(severity, field, reason string) []inspect.ProblemRow {
	return row(severity, "x.yaml:4: NetworkPolicy shop/p", field, reason)
}

var badInputs = []badInput{
	{what: "YAML that is none", text: "kind: [NetworkPolicy\n", want: row(rejected, "x.yaml:1", "", "not valid YAML")},
	{what: "tabs", text: "apiVersion: v1\n\tkind: Pod\n", want: row(rejected, "x.yaml:2", "", "tab character")},
	{what: "binary", text: "\x7fELF\x02\x01\x01\x00\xff\xfe\x80", want: row(rejected, "x.yaml:1", "", "is not UTF-8")},
	{what: "too large", text: "# " + strings.Repeat("x", 16<<20), want: row(rejected, "x.yaml", "", "more than the limit of 16777216")},
	{
		what: "another project's kind", text: "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: shop}\n",
		want: row(warning, "x.yaml:1: Deployment shop/d", "", "not a kind Margay reads"),
	},
	{
		what: "a policy of a kind that is not read", text: "apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: g}\n",
		want: row(rejected, "x.yaml:1: HostEndpoint g", "", "so it is not enforced"),
	},
	{
		what: "a misspelt kind", text: strings.Replace(netpol("p", ""), "kind: NetworkPolicy", "kind: NetworkPolcy", 1),
		want: row(rejected, "x.yaml:1: NetworkPolcy shop/p", "", "did you mean networking.k8s.io/v1 NetworkPolicy?"),
	},
	{
		what: "another version of a kind", text: strings.Replace(netpol("p", ""), "io/v1", "io/v1beta9", 1),
		want: row(rejected, "x.yaml:1: NetworkPolicy shop/p", "", "not a kind Margay reads"),
	},
	{what: "an unknown field", text: netpol("p", "ingres: []"), want: ofPolicy(rejected, "spec.ingres", "unknown field")},
	{what: "a wrong type", text: netpol("p", "ingress: all"), want: ofPolicy(rejected, "spec.ingress", "string where a list is expected")},
	{what: "no kind", text: "apiVersion: v1\nmetadata: {name: x}\n", want: row(rejected, "x.yaml:1: x", "", "it has no kind")},
	{
		what: "no name", text: "apiVersion: v1\nkind: Namespace\nmetadata: {}\n",
		want: row(rejected, "x.yaml:3: Namespace", "metadata.name", "must have a name"),
	},
	{
		what: "an impossible name", text: netpol("Not_A_Name", "ingress: []"),
		want: row(rejected, "x.yaml:3: NetworkPolicy shop/Not_A_Name", "metadata.name", "lowercase"),
	},
	{what: "no object", text: "hello\n", want: row(rejected, "x.yaml:1", "", "not an object")},
	{
		what: "an invalid selector",
		text: netpol("p", "ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: Like, values: [b]}]}}]}]"),
		want: ofPolicy(rejected, "spec.ingress[0].from[0].podSelector.matchExpressions[0].operator", "not a valid selector operator"),
	},
	{
		what: "a port out of range", text: netpol("p", "ingress: [{ports: [{port: 99999}]}]"),
		want: ofPolicy(rejected, "spec.ingress[0].ports[0].port", "between 1 and 65535"),
	},
	{
		what: "endPort below port", text: netpol("p", "ingress: [{ports: [{port: 90, endPort: 80}]}]"),
		want: ofPolicy(rejected, "spec.ingress[0].ports[0].endPort", "must not be less than port"),
	},
	{
		what: "an impossible CIDR", text: netpol("p", "ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/33}}]}]"),
		want: ofPolicy(leftOut, "spec.ingress[0].from[0].ipBlock.cidr", "not a CIDR"),
	},
	{
		what: "except outside of its block",
		text: netpol("p", "ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16]}}]}]"),
		want: ofPolicy(leftOut, "spec.ingress[0].from[0].ipBlock.except[0]", "not strictly inside"),
	},
	{
		what: "an unknown protocol", text: netpol("p", "ingress: [{ports: [{protocol: HTTP, port: 80}]}]"),
		want: ofPolicy(rejected, "spec.ingress[0].ports[0].protocol", "Unsupported value"),
	},
	{
		what: "an object twice in one file", text: netpol("p", "ingress: []") + netpol("p", "egress: []"),
		want: row(rejected, "x.yaml:6: NetworkPolicy shop/p", "", "duplicate; the object at"),
	},
	{
		what: "an object in two files", text: netpol("p", "ingress: []"), other: netpol("p", "egress: []"),
		want: row(rejected, "y.yaml:1: NetworkPolicy shop/p", "", "duplicate; the object at"),
	},
	{
		what: "no namespace", // it is default then, as with kubectl
		text: strings.Replace(netpol("p", "ingress: []"), ", namespace: shop", "", 1),
		want: []inspect.ProblemRow{{Severity: warning, Object: "NetworkPolicy default/p", Namespace: "default",
			Reason: "Namespace default does not exist: a policy applies to pods of its own namespace only"}},
	},
	{
		what: "an impossible address", text: pod("p", "elsewhere", "podIP: 10.0.0.300"),
		want: row(warning, "x.yaml:5: Pod shop/p", "status.podIP", "not an IP address"),
	},
	{what: "a pod without an address yet", text: pod("p", "elsewhere", "")},
	{
		what: "an address of two pods", text: pod("p", "elsewhere", "podIP: 10.65.1.2"),
		want: row(warning, "endpoint shop/p", "", "address 10.65.1.2 belongs to endpoint shop/client"),
	},
	{what: "nothing", text: "# nothing\n", other: "---\n# nothing\n---\n"},
	{what: "an empty file", text: "", want: row(rejected, "x.yaml", "", "the file is empty")},
	{
		what: "a list with a broken item", text: `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Namespace, metadata: {name: fine}}
- {apiVersion: v1, kind: Pod, metadata: {name: broken, namespace: shop}, spec: {containers: nothing}}
- {apiVersion: v1, kind: Namespace, metadata: {name: fine-too}}
`,
		want: row(rejected, "x.yaml:5: Pod shop/broken", "spec.containers", "string where a list is expected"),
	},
	{what: "aliases without bound", text: bomb(), want: row(rejected, "x.yaml:1", "", "aliases included")},
	{what: "nesting without bound", text: strings.Repeat("[", 100_000), want: row(rejected, "x.yaml:1", "", "max depth")},
	{
		what: "ten thousand documents, one of them broken", text: many(10_000),
		want: row(rejected, "x.yaml:20003: Namespace ns-5000", "metadata.labels", "string where an object is expected"),
	},
	// An empty directory is one, whatever it is called.
	{what: "a directory named like a file", place: func(path string) error { return os.Mkdir(path, 0o700) }},
	{
		what: "a link to nothing", place: func(path string) error { return os.Symlink("/nonexistent/file.yaml", path) },
		want: row(rejected, "x.yaml", "", "no such file"),
	},
	{
		what: "a link to itself", place: func(path string) error { return os.Symlink(path, path) },
		want: row(rejected, "x.yaml", "", "too many levels of symbolic links"),
	},
	{
		what: "a pipe", place: func(path string) error { return unix.Mkfifo(path, 0o600) },
		want: row(rejected, "x.yaml", "", "not a regular file"),
	},
}

// bomb is a small YAML document of a large tree.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return b.String()
}

// many is a file of n namespaces, of which the middle one is broken.
func many(n int) string {
	var b strings.Builder
	for i := range n {
		labels := "{}"
		if i == n/2 {
			labels = "broken"
		}
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns-%d, labels: %s}\n---\n", i, labels)
	}
	return b.String()
}

// awaitProblems waits until the agent has read everything, and then until its problems are those wanted: how objects
// fit together is known a moment later than what is wrong with one. To tell when, it makes the agent say something new of
// a file of its own.
func (c *cluster) awaitProblems(n int, want []inspect.ProblemRow) {
	c.T.Helper()
	c.Write("z-mark", fmt.Sprintf("apiVersion: example.com/v1\nkind: Mark\nmetadata: {name: mark-%d}\n", n))
	var got []inspect.ProblemRow
	defer func() {
		if c.T.Failed() {
			c.T.Logf("problems %+v, want %+v", got, want)
		}
	}()
	testutil.WaitFor(c.T, 4*soon, "the agent to have read everything and to name its problems", func() bool {
		a, err := c.Agent(0).Ask("problems")
		if err != nil {
			return false
		}
		isMark := func(p inspect.ProblemRow) bool { return strings.HasSuffix(p.Object, fmt.Sprintf("Mark mark-%d", n)) }
		got = slices.DeleteFunc(slices.Clone(a.Problems), isMark)
		return len(got) < len(a.Problems) && slices.EqualFunc(got, want, same)
	})
}

// same compares a problem with what is wanted.
func same(got, want inspect.ProblemRow) bool {
	return got.Severity == want.Severity && got.Field == want.Field && strings.Contains(got.Reason, want.Reason) &&
		(got.Object == want.Object || strings.HasSuffix(got.Object, "/"+want.Object))
}

// said are the lines of the agent's log about objects, after so many bytes: those of new problems and those of problems
// that are gone. What it says of marks is left out, and that it has said enough for a minute.
func said(t *testing.T, p *testcluster.Process, after int) (problems, resolved []string) {
	t.Helper()
	text, err := os.ReadFile(p.Log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text[after:])) {
		switch {
		case strings.Contains(line, "z-mark.yaml"), strings.Contains(line, "there are more problems"):
		case strings.Contains(line, `"problem in the directory is resolved"`):
			resolved = append(resolved, line)
		case strings.Contains(line, `"WARN"`), strings.Contains(line, `"ERROR"`):
			problems = append(problems, line)
		}
	}
	return problems, resolved
}

// showProblems asks with the tool that people use.
func showProblems(t *testing.T, p *testcluster.Process) (rows []inspect.ProblemRow) {
	t.Helper()
	out, err := exec.Command(testcluster.Build(t), "show", "problems", "--socket", p.Socket, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &rows)
	}
	if err != nil {
		t.Fatalf("margay show problems: %v\n%s", err, out)
	}
	return rows
}

// Whatever is put into the directory: it is reported with its file, and its object as far as one can be made out, at most
// once in the log, whose limit these many problems pass, and for as long as it is there in the status; all else stays enforced, not a packet of anybody else is
// lost; and with its removal everything is as before.
func TestBadInputIsReportedAndDisturbsNothing(t *testing.T) {
	c := newCluster(t, oneNode)
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for i, b := range badInputs {
		t.Run(b.what, func(t *testing.T) {
			outer := c.T
			c.T = t
			defer func() { c.T = outer }()
			c.badInput(b, 2*i)
			tr.Some("with " + b.what)
		})
	}
	tr.Stop()
	if a, err := c.Agent(0).Ask("status"); err != nil || !a.Status.Ready || a.Status.Failed > 0 {
		t.Errorf("status at the end: %+v, %v", a, err)
	}
}

func (c *cluster) badInput(b badInput, mark int) {
	c.T.Helper()
	_, length := c.Agent(0).Warnings(c.T, 0)
	path := filepath.Join(c.Dir, "x.yaml")
	var err error
	if b.place != nil {
		err = b.place(path)
	} else {
		c.Write("x", b.text)
	}
	if b.other != "" {
		c.Write("y", b.other)
	}
	if err != nil {
		c.T.Fatal(err)
	}
	c.awaitProblems(mark, b.want)
	if shown := showProblems(c.T, c.Agent(0)); len(shown) != len(b.want)+1 {
		c.T.Errorf("margay show problems says %+v, want %+v and the mark", shown, b.want)
	}
	lines, _ := said(c.T, c.Agent(0), length)
	fromDirectory := slices.DeleteFunc(slices.Clone(b.want), func(p inspect.ProblemRow) bool { return !strings.Contains(p.Object, ".yaml") })
	if len(lines) > len(fromDirectory) || len(lines) > 0 && !strings.Contains(lines[0], "/"+fromDirectory[0].Object+`"`) {
		c.T.Errorf("the log says %q, want at most one line of each of %+v", lines, fromDirectory)
	}
	if err := os.Remove(path); err != nil {
		c.T.Fatal(err)
	}
	if b.other != "" {
		c.Remove("y")
	}
	c.awaitProblems(mark+1, nil)
	if problems, resolved := said(c.T, c.Agent(0), length); len(problems) > len(fromDirectory) || len(resolved) > len(fromDirectory) {
		c.T.Errorf("the log says %q and then %q, want at most one line of each of %+v", problems, resolved, fromDirectory)
	}
}
