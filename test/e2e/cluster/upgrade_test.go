package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// What may be set: how many agents are ended, and the seed that repeats a run's choices.
const (
	roundsEnv     = "MARGAY_E2E_KILLS"
	seedEnv       = "MARGAY_E2E_SEED"
	defaultRounds = 12
)

// release is an agent that is not the one before.
type release struct{ version, binary string }

// edit replaces one text of a file of this repository.
type edit struct{ file, old, new string }

// otherRelease builds the agent of this tree with another version, and further edits.
func otherRelease(t *testing.T, version string, edits ...edit) release {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := release{version, filepath.Join(dir, "margay")}
	edits = append(edits, edit{"cmd/agent/cli/cmd_version.go", "func version() string {",
		fmt.Sprintf("func version() string { return %q }\n\nfunc _() string {", version)})
	replaced := map[string]string{}
	for i, e := range edits {
		path := filepath.Join(root, e.file)
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(content), e.old) != 1 {
			t.Fatalf("%s does not say %q once", e.file, e.old)
		}
		replaced[path] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replaced[path], []byte(strings.Replace(string(content), e.old, e.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-C", root, "-overlay", filepath.Join(dir, "overlay.json"), "-o", r.binary, "./cmd/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build release %s: %v: %s", version, err, out)
	}
	return r
}

// Agents are killed at random moments, of their start as well as of their work, ended as an orchestrator ends them, and
// started again as they were, as another release, or as one whose maps have another layout, on a cluster whose policies,
// labels and pods change all the while under traffic: nothing is lost, nothing is misjudged, and each agent that is let
// start enforces what was changed without one.
func TestAgentsKilledAndUpgradedOnALiveCluster(t *testing.T) {
	rounds, seed := testutil.Number(t, roundsEnv, defaultRounds), testutil.Number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d %s=%d", seedEnv, seed, roundsEnv, rounds)
	c := newCluster(t, options{})
	releases := []release{
		{binary: agentBinary(t)}, // of whatever version
		otherRelease(t, "v9.0.0"),
		otherRelease(t, "v10.0.0", edit{"pkg/bpfmaps/dir.go", layout(bpfmaps.Layout), layout(bpfmaps.Layout + 1)}),
	}
	m := &upheaval{scene: c.newScene(), random: rand.New(rand.NewPCG(seed, 0))}
	c.pod("other", "member", "n2")
	for i := range rounds {
		m.round(int(i), releases)
		if t.Failed() {
			t.Fatalf("in round %d; %s", i, m.told)
		}
	}
	m.traffic.some("after the last round")
	m.traffic.stop()
	for _, n := range c.nodes {
		n.agent.quiet()
	}
	t.Logf("%d agents were let start, the slowest enforced everything after %v; %d were killed while they started, %d upgrades; %d changes",
		rounds, m.slowest.Round(time.Millisecond), m.early, m.upgrades, m.changes)
}

// layout is how the code says the version of the maps.
func layout(version int) string { return fmt.Sprintf("const Layout = %d\n", version) }

// upheaval is what happens beside the traffic.
type upheaval struct {
	*scene
	random                   *rand.Rand
	open                     bool // the toggled pods
	changes, early, upgrades int
	slowest                  time.Duration
	told                     string // of this round
}

func (m *upheaval) upTo(d time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(d)))
}

// round ends one agent, changes what it would have to enforce, and lets one start there in the end.
func (m *upheaval) round(i int, releases []release) {
	m.c.t.Helper()
	at := m.random.IntN(len(m.c.nodes))
	a, judged := m.c.nodes[at].agent, m.toggled[at]
	m.c.awaitReach(m.probe.Host, judged.Addrs(), openPort, m.open) // the round before was about the other node, perhaps
	m.changeFor(m.upTo(200 * time.Millisecond))
	how := "killed"
	if m.random.IntN(2) == 0 {
		how = "terminated"
		a.terminate()
	} else {
		a.kill()
	}
	m.traffic.some("without an agent")
	m.open = !m.open
	m.toggle(m.open)
	m.c.reach(m.probe.Host, judged.Host, openPort, !m.open) // nobody has heard of it
	early := m.random.IntN(3)
	m.told = fmt.Sprintf("%s on %s, then killed %d times while it started", how, a.node.Name(), early)
	for range early {
		m.upgrade(a, releases)
		m.c.must(a.launch())
		m.changeFor(m.upTo(900 * time.Millisecond))
		a.kill()
		m.early++
	}
	next := m.upgrade(a, releases)
	m.told += ", then " + next.version
	launched := time.Now()
	m.c.must(a.launch())
	m.c.awaitReach(m.probe.Host, judged.Addrs(), openPort, m.open)
	m.slowest = max(m.slowest, time.Since(launched))
	a.awaitReady()
	m.c.reach(m.probe.Host, judged.Host, openPort, m.open)
	if answer, err := a.ask("status"); err != nil || next.version != "" && answer.Status.Version != next.version {
		m.c.t.Errorf("round %d: the agent on %s is not of version %q: %+v (%v)", i, a.node.Name(), next.version, answer, err)
	}
	m.traffic.some("with a new agent")
}

// upgrade chooses the release that is started next.
func (m *upheaval) upgrade(a *agent, releases []release) release {
	next := releases[m.random.IntN(len(releases))]
	if next.binary != a.binary {
		m.upgrades++
	}
	a.binary = next.binary
	return next
}

// changeFor changes policies, labels and pods until the time is over. Nothing of it is about the traffic.
func (m *upheaval) changeFor(d time.Duration) {
	m.c.t.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		next := time.NewTimer(5*time.Millisecond + m.upTo(40*time.Millisecond))
		select {
		case <-over.C:
			next.Stop()
			return
		case <-next.C:
			m.change()
		}
	}
}

func (m *upheaval) change() {
	m.c.t.Helper()
	m.changes++
	switch m.random.IntN(8) {
	case 0, 1, 2: // one rule more of the servers, with members that come and go
		m.c.policy("shop", "more", fmt.Sprintf(`{podSelector: {matchLabels: {tier: base}}, ingress: [{
  from: [{namespaceSelector: {}, podSelector: {matchLabels: {role: x%d}}}], ports: [{port: %d}]}]}`, m.random.IntN(3), 1000+m.random.IntN(50)))
	case 3, 4:
		m.c.labelPod("other", "member", fmt.Sprintf(`{"role":"x%d"}`, m.random.IntN(3)))
	case 5:
		m.c.policy("shop", "further", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{
  namespaceSelector: {}, podSelector: {matchLabels: {role: x1}}}]}]}`)
	case 6:
		m.c.delete("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: more}\n" +
			"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: further}\n")
	case 7:
		m.comeOrGo()
	}
}

// comeOrGo makes a pod, or deletes it; always of one name on each node, and without waiting.
func (m *upheaval) comeOrGo() {
	m.c.t.Helper()
	n := m.c.nodes[m.random.IntN(len(m.c.nodes))].Name()
	ctx, pods := m.c.t.Context(), m.c.client.CoreV1().Pods("other")
	p, err := pods.Get(ctx, "churn-"+n, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m.c.apply(podSpec{labels: []string{"role: x2"}, extra: []string{"nodeName: " + n}}.manifest("other", "churn-"+n))
		return
	case err == nil && p.DeletionTimestamp == nil:
		err = pods.Delete(ctx, p.Name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		m.c.must(err)
	}
}
