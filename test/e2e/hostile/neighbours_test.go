package hostile

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	neighbours    = 100 // honest pods on each node
	latencyPairs  = 4
	changesARound = 60
	tenantOut     = "MARGAY_E2E_TENANT_OUT"
	tenantMust    = 1.2
)

// One tenant is at every limit, sends and changes its policies all the time, beside 100 honest pods: their packets and
// their changes take as long as those of the same pods on a node without it. A third node has a tenant that sends as many
// packets and writes as many manifests, and is at no limit. The nodes are measured in turn, each time in another order, and
// the tenants rest while another node is. Run by make bench-tenant.
func TestTenantAtEveryLimitDisturbsNobody(t *testing.T) {
	testcluster.NeedsBPF(t, "the limits that it reports are of BPF maps")
	out := testutil.Getenv(tenantOut)
	if out == "" {
		t.Skipf("runs for minutes, with %s=FILE only", tenantOut)
	}
	rounds := testutil.Number(t, "MARGAY_E2E_TENANT_ROUNDS", 12)
	clocks := startClocks(t)
	var nodes [conditions]*neighbourhood
	for c := range nodes {
		nodes[c] = newNeighbours(t, clocks)
	}
	busy, hostile := newTenant(nodes[withBusy], false), newTenant(nodes[withTenant], true)
	var r tenantReport
	for i := range rounds { // three nodes alike
		r.control.add(measureAll(nodes, int(i), func(condition) func() { return func() {} }))
	}
	hostile.fill()
	r.before = hostile.state()
	tenants := [conditions]*tenant{withBusy: busy, withTenant: hostile}
	for i := range rounds {
		r.result.add(measureAll(nodes, int(i), func(c condition) func() {
			if tenants[c] == nil {
				return func() {}
			}
			return tenants[c].play()
		}))
	}
	r.after = hostile.state()
	text := r.text()
	t.Log("\n" + text)
	if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, ratio := range r.result.ratios(withTenant, without) {
		if ratio > tenantMust {
			t.Errorf("%s: %.2f of what it is without the tenant, must be %.2f at most", what, ratio, tenantMust)
		}
	}
}

// condition is what the honest pods of a node have beside them.
type condition int

const (
	without    condition = iota
	withBusy             // a tenant that works as much and is at no limit
	withTenant           // a tenant at every limit
	conditions
)

// measureAll measures each node once, beginning with another one in each round. begin returns what ends the tenant's work.
func measureAll(nodes [conditions]*neighbourhood, round int, begin func(condition) (end func())) (all [conditions]sample) {
	for i := range nodes {
		c := condition((i + round) % len(nodes))
		end := begin(c)
		all[c] = nodes[c].measure()
		end()
		nodes[c].awaitIdle()
	}
	return all
}

// neighbourhood is a node with honest pods, every one with a policy of its own.
type neighbourhood struct {
	*testcluster.Cluster
	pods   []*lab.Pod
	next   int // whose policy changes next
	pairs  []*pair
	clocks *clocks
}

func newNeighbours(t *testing.T, c *clocks) *neighbourhood {
	t.Helper()
	n := &neighbourhood{Cluster: testcluster.New(t, []string{"n1"}), clocks: c}
	for i := range neighbours {
		p := n.Plug(n.Node(0), fmt.Sprintf("p%d", i))
		n.Declare(p)
		n.Policy(fmt.Sprintf("p%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: p%d}}, ingress: [{ports: [{port: 80, protocol: UDP}]}]}`, i))
		n.pods = append(n.pods, p)
	}
	for _, p := range n.pods {
		n.AwaitPolicies(p, 1, 0)
	}
	for i := range latencyPairs {
		n.pairs = append(n.pairs, openPair(t, n.pods[2*i], n.pods[2*i+1], 80))
	}
	return n
}

// sample is what one round has measured.
type sample struct {
	latency, late, change []time.Duration
	agent                 float64 // CPUs that the agent used
}

// measure changes policies one after the other, and beside it asks for answers on established flows. The garbage collector
// rests: it cannot stop threads that wait in the kernel without its knowledge, and would wait for them.
func (n *neighbourhood) measure() (s sample) {
	n.T.Helper()
	changes := n.prepareChanges()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	before, started := n.Agent(0).CPUTime(), time.Now()
	latency := n.clocks.ask(n.pairs)
	failed := n.clocks.changes.do(func() error {
		for i := range changes {
			took, err := changes[i].enforced()
			if err != nil {
				return err
			}
			s.change = append(s.change, took)
		}
		return nil
	})
	s.latency, s.late = latency()
	s.agent = (n.Agent(0).CPUTime() - before).Seconds() / time.Since(started).Seconds()
	for _, c := range changes {
		c.pair.close()
	}
	if failed != nil || n.T.Failed() {
		n.T.Fatal("measure changes:", failed)
	}
	return s
}

// prepareChanges returns the next changes. Each has sockets of its own.
func (n *neighbourhood) prepareChanges() (all []change) {
	n.T.Helper()
	for range changesARound {
		i := n.next % neighbours
		n.next++
		all = append(all, change{
			cluster: n.Cluster, name: fmt.Sprintf("open-p%d", i), pair: openPair(n.T, n.pods[(i+1)%neighbours], n.pods[i], 81),
			spec: fmt.Sprintf(`{podSelector: {matchLabels: {app: p%d}}, ingress: [{ports: [{port: 81, protocol: UDP}]}]}`, i),
		})
	}
	return all
}
