package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// What may be set: how often the agent is killed, and the seed that repeats a run's choices.
const (
	killsEnv     = "MARGAY_E2E_KILLS"
	seedEnv      = "MARGAY_E2E_SEED"
	defaultKills = 80
)

// Killed at random moments, of its start as well as of its work, while policy changes, pods come and go, and traffic
// runs: nothing is misjudged, nothing lost, and every agent that is given the time enforces what is written by then.
func TestAgentKilledAtRandomMoments(t *testing.T) {
	kills, seed := testutil.Number(t, killsEnv, defaultKills), testutil.Number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d %s=%d", seedEnv, seed, killsEnv, kills)
	c := newCluster(t, oneNode)
	m := &mayhem{cluster: c, random: rand.New(rand.NewPCG(seed, 0))}
	m.client, m.server = c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	m.member = c.Pod(c.Node(0), "member")
	if _, err := echo.ListenTCP(m.server.Host, togglePort); err != nil {
		t.Fatal(err)
	}
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(m.server, 1, 0)
	tr := c.StartTraffic(m.client, m.server)
	starting, slowest := 0, time.Duration(0)
	for i := range kills {
		m.toggle()
		if i > 0 {
			c.Agent(0).Launch()
		}
		launched := time.Now()
		if m.random.IntN(2) == 0 {
			starting++
			m.changeFor(m.upTo(300 * time.Millisecond))
		} else {
			m.awaitToggle()
			slowest = max(slowest, time.Since(launched))
			m.changeFor(m.upTo(100 * time.Millisecond))
		}
		c.Agent(0).Kill()
		if t.Failed() {
			t.Fatalf("after kill %d", i)
		}
	}
	m.toggle()
	c.Agent(0).Start()
	m.awaitToggle()
	tr.Some("after the last start")
	tr.Stop()
	t.Logf("%d kills, %d of them of agents just started; slowest to enforce what is written: %v; %d changes", kills, starting, slowest, m.changes)
}

const togglePort = 82

// mayhem is what happens beside the traffic.
type mayhem struct {
	*cluster
	random                 *rand.Rand
	client, server, member *lab.Pod
	churn                  *lab.Pod // nil: it is not there now
	changes, toggles       int
	name                   string // of the policy that toggle wrote
}

func (m *mayhem) upTo(d time.Duration) time.Duration { return time.Duration(m.random.Int64N(int64(d))) }

// changeFor changes policy, labels and pods until the time is over. Nothing of it is about the traffic.
func (m *mayhem) changeFor(d time.Duration) {
	m.T.Helper()
	over := time.NewTimer(d)
	defer over.Stop()
	for {
		next := time.NewTimer(5*time.Millisecond + m.upTo(30*time.Millisecond))
		select {
		case <-over.C:
			next.Stop()
			return
		case <-next.C:
			m.change()
		}
	}
}

func (m *mayhem) change() {
	m.T.Helper()
	m.changes++
	switch m.random.IntN(8) {
	case 0, 1, 2:
		m.Policy("more", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {role: x%d}}}], ports: [{port: %d}]}]}`, m.random.IntN(3), 1000+m.random.IntN(50)))
	case 3, 4:
		m.Declare(m.member, fmt.Sprintf("role: x%d", m.random.IntN(3)))
	case 5:
		m.Policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{
  podSelector: {matchLabels: {app: server}}}]}, {to: [{podSelector: {matchLabels: {role: x1}}}]}]}`)
	case 6:
		for _, name := range []string{"policy-more", "policy-client"} {
			if _, err := os.Stat(filepath.Join(m.Dir, name+".yaml")); err == nil {
				m.Remove(name)
			}
		}
	case 7:
		m.comeOrGo()
	}
}

// comeOrGo makes a pod, or deletes it; always of one name.
func (m *mayhem) comeOrGo() {
	m.T.Helper()
	if m.churn == nil {
		m.churn = m.Plug(m.Node(0), "churn", netip.MustParseAddr("10.65.1.99"), netip.MustParseAddr("fd65:0:0:1::99"))
		m.Declare(m.churn, "role: x2")
		return
	}
	if err := m.Node(0).DelPod(m.churn); err != nil {
		m.T.Fatal(err)
	}
	m.Remove("pod-churn")
	m.churn = nil
}

// toggle opens the server's port togglePort to the client, or closes it.
func (m *mayhem) toggle() {
	m.T.Helper()
	old := m.name
	m.toggles++
	m.name = fmt.Sprintf("toggle-%d", m.toggles)
	spec := fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {app: nobody}}}, {podSelector: {matchLabels: {app: %s}}}], ports: [{port: %d}]}]}`,
		[]string{"member", "client"}[m.toggles%2], togglePort)
	m.Policy(m.name, spec)
	if old != "" {
		m.Remove("policy-" + old)
	}
}

// awaitToggle waits until the agent enforces what toggle wrote last, and demands that it does.
func (m *mayhem) awaitToggle() {
	m.T.Helper()
	testutil.WaitFor(m.T, 2*soon, "the agent to enforce "+m.name, func() bool {
		e := m.Row(m.server)
		if e == nil || e.Error != "" {
			return false
		}
		toggles := 0
		for _, p := range e.Ingress.Policies {
			if strings.Contains(p, "/toggle-") {
				toggles++
			}
			if strings.Contains(p, "/toggle-") && !strings.HasSuffix(p, "/"+m.name) {
				return false
			}
		}
		a, err := m.Agent(0).Ask("status")
		return toggles == 1 && err == nil && a.Status.Ready
	})
	to := netip.AddrPortFrom(m.server.Addr(m.random.IntN(2) == 0), togglePort)
	timeout, want := never/2, echo.Timeout
	if m.toggles%2 == 1 {
		timeout, want = soon, echo.Connected
	}
	if got := echo.DialTCP(m.client.Host, to, timeout); got.Outcome != want {
		m.T.Errorf("%s under %s: %v (%v), want %v", to, m.name, got.Outcome, got.Err, want)
	}
}
