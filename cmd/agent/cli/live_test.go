//go:build linux

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// asAgent makes this test binary the margay command, so that an agent can be a process in a node's namespace.
const asAgent = "MARGAY_TEST_AS_AGENT"

func TestMain(m *testing.M) {
	if os.Getenv(asAgent) != "" {
		os.Unsetenv(asAgent)
		Main()
	}
	os.Exit(m.Run())
}

// liveNode is a lab node with an agent on it, two pods of namespace shop, and a policy: web may open db's port 80.
type liveNode struct {
	t                  *testing.T
	machine            *lab.Node
	web, db            *lab.Pod
	dir, bpffs, socket string
	agent              *exec.Cmd
	log                string // of all agents so far
}

func newNode(t *testing.T) *liveNode {
	t.Helper()
	testutil.Privileged(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n := &liveNode{t: t, dir: t.TempDir(), bpffs: testutil.BPFFS(t), socket: filepath.Join(t.TempDir(), "agent.sock")}
	n.log = filepath.Join(t.TempDir(), "log")
	if n.machine, err = l.AddNode("node"); err != nil {
		t.Fatal(err)
	}
	n.web, n.db = n.pod("web"), n.pod("db")
	for _, port := range []uint16{80, 81} {
		if _, err := echo.ListenTCP(n.db.Host, port); err != nil {
			t.Fatal(err)
		}
	}
	manifests := `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]
`
	for _, p := range []*lab.Pod{n.web, n.db} {
		name := strings.TrimPrefix(p.Name(), "shop/")
		manifests += fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %s}}
spec: {nodeName: node, containers: [{name: c}]}
status: {podIPs: [{ip: %q}, {ip: %q}]}
`, name, name, p.Addr4(), p.Addr6())
	}
	if err := os.WriteFile(filepath.Join(n.dir, "shop.yaml"), []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *liveNode) pod(name string) *lab.Pod {
	n.t.Helper()
	p, err := n.machine.AddPod("shop", name)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// cli runs a command line about this node's agent in the node's namespace.
func (n *liveNode) cli(args ...string) (out string, code int) {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	args = append(args, "--bpffs", n.bpffs, "--socket", n.socket, "--instance", "live")
	err := n.machine.Do(func() error {
		code = execute(n.t.Context(), args, &stdout, &stderr)
		return nil
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return stdout.String() + stderr.String(), code
}

// want runs a command line that must end with the code and say all of the words.
func (n *liveNode) want(code int, words []string, args ...string) string {
	n.t.Helper()
	out, got := n.cli(args...)
	if got != code {
		n.t.Errorf("margay %s: exit status %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			n.t.Errorf("margay %s: no %q in\n%s", strings.Join(args, " "), w, out)
		}
	}
	return out
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

func (n *liveNode) start() {
	n.t.Helper()
	n.launch()
	n.ready(func() bool {
		out, code := n.cli("show", "status", "-o", "json")
		if code != 0 {
			return false
		}
		s := decode[inspect.StatusReport](n.t, out)
		return s.Ready && s.Endpoints == 2
	}, "the agent to enforce the policy of two pods")
}

func (n *liveNode) logged() string {
	n.t.Helper()
	text, err := os.ReadFile(n.log)
	if err != nil {
		n.t.Error(err)
	}
	return string(text)
}

// ready waits until the agent that runs is as it should be.
func (n *liveNode) ready(is func() bool, what string) {
	n.t.Helper()
	testutil.WaitFor(n.t, time.Minute, what, is)
}

// launch starts the agent and does not wait. Flags come after, and so in the place of, the usual ones.
func (n *liveNode) launch(flags ...string) {
	n.t.Helper()
	binary, err := os.Executable()
	if err != nil {
		n.t.Fatal(err)
	}
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	args := []string{"run", "--dir", n.dir, "--node", "node", "--bpffs", n.bpffs, "--socket", n.socket, "--instance", "live"}
	n.agent = exec.Command(binary, append(args, flags...)...)
	n.agent.Env = append(os.Environ(), asAgent+"=1")
	n.agent.Stdout, n.agent.Stderr = log, log
	if err := n.machine.Start(n.agent); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if n.agent != nil {
			n.stop(syscall.SIGKILL)
		}
		if n.t.Failed() {
			n.t.Logf("the agent's log:\n%s", n.logged())
		}
	})
}

// probe asks the agent's /readyz, from the node.
func (n *liveNode) probe() (body string, ok bool, err error) {
	n.t.Helper()
	err = n.machine.Do(func() error {
		conn, err := (&net.Dialer{Timeout: answered}).DialContext(n.t.Context(), "tcp", "127.0.0.1:9096")
		if err != nil {
			return err
		}
		client := http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, DisableKeepAlives: true,
		}}
		answer, err := client.Get("http://agent/readyz")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		body, ok = string(text), answer.StatusCode == http.StatusOK
		return err
	})
	return body, ok, err
}

// unready asserts that the agent, once it answers, says it is not ready for the want of the component, and returns all it
// says.
func (n *liveNode) unready(component string) string {
	n.t.Helper()
	var body string
	var ok bool
	n.ready(func() bool {
		var err error
		body, ok, err = n.probe()
		return err == nil
	}, "an answer of /readyz")
	if first, _, _ := strings.Cut(body, "\n"); ok || !strings.HasPrefix(first, "not ready: ") || !strings.Contains(first, component) {
		n.t.Errorf("/readyz answers %t\n%s\nwant not ready for the want of %s", ok, body, component)
	}
	return body
}

// answered is ample time for an answer that is expected.
const answered = 20 * time.Second

func (n *liveNode) stop(signal syscall.Signal) {
	n.t.Helper()
	if err := n.agent.Process.Signal(signal); err != nil {
		n.t.Error(err)
	}
	if err := n.agent.Wait(); err != nil && signal == syscall.SIGTERM {
		n.t.Errorf("the agent ended with %v", err)
	}
	n.agent = nil
}

// reach tries web to db and reports whether there was an answer.
func (n *liveNode) reach(port uint16) bool {
	timeout := answered
	if port != 80 {
		timeout = 300 * time.Millisecond
	}
	return echo.DialTCP(n.web.Host, netip.AddrPortFrom(n.db.Addr4(), port), timeout).Outcome == echo.Connected
}

func (n *liveNode) wantReach(port uint16, want bool) {
	n.t.Helper()
	if got := n.reach(port); got != want {
		n.t.Errorf("web reaches db's port %d: %v, want %v", port, got, want)
	}
}

func TestToolsOnALiveAgent(t *testing.T) {
	n := newNode(t)
	n.want(2, []string{"no agent runs there", "margay run", "--instance"}, "show", "endpoints")
	n.want(2, []string{"nothing is enforced there"}, "show", "flows")
	n.wantReach(81, true)

	n.start()
	n.wantReach(80, true)
	n.wantReach(81, false)
	t.Run("show", n.testShow)
	t.Run("explain", n.testExplain)
	t.Run("monitor", n.testMonitor)
	n.want(0, []string{"ready: policy of 2 endpoints is enforced", "TCX links", "all is well"}, "check")
	n.want(2, []string{"is running", "stop it first"}, "cleanup")
	t.Run("another socket", n.testAnotherSocket)

	asked := n.explainAll()
	n.stop(syscall.SIGTERM)
	for _, line := range []string{`"msg":"stopping","why":"terminated`, `"msg":"stopped; enforced policy stays in force`, `"endpoints":2,"tookSeconds":`} {
		if !strings.Contains(n.logged(), line) {
			t.Errorf("the agent that was stopped has not logged %s", line)
		}
	}
	n.wantReach(80, true)
	n.wantReach(81, false)
	t.Run("show without an agent", n.testShowPinned)
	t.Run("explain without an agent", func(t *testing.T) { n.testExplainPinned(t, asked) })
	t.Run("before the first snapshot", func(t *testing.T) { n.testBeforeTheFirstSnapshot(t, asked) })
	n.want(0, []string{"tcp", n.db.Addr4().String() + ":80"}, "show", "flows")
	n.want(0, []string{"shop/db", n.db.Iface(), "policy"}, "show", "drops")
	t.Run("cleanup", n.testCleanup)
}

func (n *liveNode) testShow(t *testing.T) {
	n.want(0, []string{"shop/web", "shop/db", n.db.Iface(), "tcx/ingress,tcx/egress", "1 policy, 2 rules", "no policy"}, "show", "endpoints")
	rows := decode[[]inspect.EndpointRow](t, n.want(0, nil, "show", "endpoints", "-o", "json"))
	if len(rows) != 2 || len(rows[0].Attached) != 2 || !rows[0].Attached[0].Attached || rows[0].Attached[0].Before != 0 {
		t.Errorf("endpoints: %+v", rows)
	}
	n.want(0, []string{"NetworkPolicy", "db", "default"}, "show", "policies")
	n.want(0, []string{"Allow", "from {pods app=web in namespace shop}", "port 80", "NetworkPolicy shop/db ingress[0]", "no policy decides (never reached)"}, "show", "rules", "shop/db")
	n.want(2, []string{"no local endpoint shop/nope", "show endpoints"}, "show", "rules", "shop/nope")
	n.want(0, []string{n.web.Addr4().String(), "pods app=web in namespace shop"}, "show", "sets")
	n.want(0, []string{"pods app=web in namespace shop"}, "show", "sets", "-n", "shop")
	n.want(0, []string{"none of 3 rows matches"}, "show", "sets", "-n", "other")
	n.want(0, []string{"no problems"}, "show", "problems")
	n.want(0, []string{"no problems"}, "show", "problems", "-n", "shop")
	n.want(0, []string{"ready", "node", "bpf"}, "show", "status")

	flows := decode[[]flowRow](t, n.want(0, nil, "show", "flows", "-o", "json"))
	found := false
	for _, f := range flows {
		if f.Responder == netip.AddrPortFrom(n.db.Addr4(), 80).String() {
			found = true
			if f.OpenerName != "shop/web" || f.ResponderName != "shop/db" || f.Egress != "current" || f.Ingress != "current" || f.Age == nil || *f.Age > 30 {
				t.Errorf("flow %+v", f)
			}
		}
	}
	if !found {
		t.Errorf("no flow to port 80 among %+v", flows)
	}
	drops := decode[[]dropRow](t, n.want(0, nil, "show", "drops", "-o", "json"))
	found = false
	for _, d := range drops {
		if d.Endpoint == "shop/db" && d.Direction == "ingress" && d.Reason == "policy" && d.Packets > 0 && d.Bytes > 0 {
			found = true
		}
	}
	if !found {
		t.Errorf("no drops of shop/db by policy among %+v", drops)
	}
}

func (n *liveNode) testExplain(t *testing.T) {
	n.want(0, []string{"allow: shop/web", "ingress  allow by NetworkPolicy shop/db ingress[0]"}, "explain", "shop/web", "shop/db:80")
	n.want(1, []string{"deny: shop/web", "NetworkPolicy shop/db selects shop/db, and none of its ingress rules matches", "destination port 81 is not among 80"}, "explain", "shop/web", "shop/db:81/tcp")
	n.want(2, []string{"no pod shop/nope"}, "explain", "shop/nope", "shop/db:81/tcp")
	e := decode[explain.Explanation](t, n.want(1, nil, "explain", "shop/web", "shop/db:81/tcp", "-6", "-o", "json"))
	if e.Verdict != "deny" || e.Ingress.Name != "db" || e.Ingress.Rule != "end-of-tier" || !strings.Contains(e.Src, n.web.Addr6().String()) {
		t.Errorf("%+v", e)
	}
}

func (n *liveNode) testCleanup(t *testing.T) {
	out := n.want(0, []string{"tcx/ingress of " + n.db.Iface(), "netfilter judge-forward-ip4", "netfilter guard-pre_routing-ip6", "maps", "directory"}, "cleanup")
	if left, err := filepath.Glob(filepath.Join(n.bpffs, "margay*")); err != nil || len(left) != 0 {
		t.Errorf("left in bpffs: %v, %v", left, err)
	}
	// Taken off at once, not when somebody lets go: packets pass from here on.
	n.wantReach(80, true)
	n.wantReach(81, true)
	if t.Failed() {
		t.Logf("cleanup said:\n%s", out)
	}
	n.want(0, []string{"nothing to remove"}, "cleanup")
	n.want(2, []string{"nothing is enforced there"}, "show", "drops")

	// Half gone: a killed agent whose links directory somebody has emptied.
	n.start()
	n.stop(syscall.SIGKILL)
	links, err := filepath.Glob(filepath.Join(n.bpffs, "margay-live", "v*", "links", "*"))
	if err != nil || len(links) < 4 {
		t.Fatalf("links: %v, %v", links, err)
	}
	for _, l := range links[:len(links)/2] {
		if err := os.Remove(l); err != nil {
			t.Fatal(err)
		}
	}
	n.want(0, []string{"directory", n.socket}, "cleanup")
	n.want(0, []string{"nothing to remove"}, "cleanup")
	testutil.WaitFor(t, answered, "web to reach db after cleanup", func() bool { return n.reach(81) })
}
