package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// TestAStagedPolicyIsFoundOutOnLiveTraffic: one that would deny everything, on real veths. Nothing is denied, each new
// connection is counted once, packets of open ones are not, and the counts go on with the next agent.
func TestAStagedPolicyIsFoundOutOnLiveTraffic(t *testing.T) {
	c := newCluster(t, oneNode)
	db, web, probe := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "web"), c.Pod(c.Node(0), "probe")
	c.Serve(db.Host, 80)
	c.Reach(web.Host, db.Host, 80, true) // before there is one: not counted
	row := func() inspect.StagedRow { return stagedRow(c.Agent(0), "deny-all") }
	c.Write("staged", `apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: deny-all, namespace: shop}
spec: {order: 1, selector: app == 'db', types: [Ingress]}
`)
	testutil.WaitFor(t, time.Minute, "the staged policy applies", func() bool { return row().Endpoints == 1 })
	counted := countedBefore(t, c, probe, db)
	counted()
	before := row()                      // what came before the second staged policy
	c.Reach(web.Host, db.Host, 80, true) // TCP and UDP, over both families
	counted()
	if after := row(); after.WouldDeny != before.WouldDeny+uint64(2*len(db.Addrs())) || after.WouldAllow != 0 {
		t.Errorf("%d would be denied, %d allowed; before %d connections %d", after.WouldDeny, after.WouldAllow, 2*len(db.Addrs()), before.WouldDeny)
	}
	const series = `margay_staged_flows_total{direction="ingress",namespace="shop",verdict="deny"} `
	want, lines := fmt.Sprintf("%s%d\n", series, row().WouldDeny), ""
	defer func() {
		if t.Failed() {
			t.Logf("metrics:\n%s", lines)
		}
	}()
	testutil.WaitFor(t, time.Minute, "metrics to have the line "+want, func() bool { // those of a busy agent are of the scrape before
		lines = scrape(t, c.Node(0))
		return strings.Contains(lines, want)
	})
	testutil.WaitFor(t, time.Minute, "examples", func() bool { // events are rate limited
		c.Reach(web.Host, db.Host, 80, true)
		return len(row().Examples) > 0
	})
	for _, e := range row().Examples {
		if e.Endpoint != "shop/db" || e.Verdict != "allow" || e.Staged.Verdict != "deny" || e.Staged.Rule != "default/snp/shop/deny-all#end-of-tier" || e.Dst.Port() != 80 {
			t.Errorf("example %+v, staged %+v", e, e.Staged)
		}
	}
	before = row()
	c.Agent(0).Terminate()
	c.Agent(0).Start()
	if testcluster.IPTables() { // counts are the agent's, and begin with it
		before = inspect.StagedRow{}
	}
	testutil.WaitFor(t, time.Minute, "the next agent goes on counting", func() bool { return row().Endpoints == 1 && row().WouldDeny >= before.WouldDeny })

	c.Remove("staged")
	c.Remove("staged-probe")
	testutil.WaitFor(t, time.Minute, "it is gone", func() bool { return row().Name == "" })
	c.Reach(web.Host, db.Host, 80, true)
}

// stagedRow is the row of ingress of a staged policy.
func stagedRow(agent *testcluster.Process, name string) (found inspect.StagedRow) {
	if answer, err := agent.Ask("staged"); err == nil {
		for _, r := range answer.Staged {
			if r.Name == name && r.Direction == "ingress" {
				found = r
			}
		}
	}
	return found
}

// countedBefore has one more staged policy count the flows from one pod to another, and waits until it does. From then on all staged
// policies of that pod are evaluated: the second of two evaluations is compiled in a plan of its own, behind the one with the change.
//
// Copies of packets are counted a little later, in their order. The function that it returns waits until those are counted that were made
// before its call: it makes flows until more are counted than there were at its call.
func countedBefore(t *testing.T, c *cluster, from, to *lab.Pod) (counted func()) {
	t.Helper()
	c.Write("staged-probe", `apiVersion: projectcalico.org/v3
kind: StagedGlobalNetworkPolicy
metadata: {name: probe}
spec: {order: 10, selector: app == 'db', types: [Ingress], ingress: [{action: Deny, source: {selector: app == 'probe'}}]}
`)
	made := uint64(0)
	more := func(than uint64) bool {
		dst := netip.AddrPortFrom(to.Addr(false), 80)
		if got := echo.ExchangeUDP(from.Host, dst, []byte("x"), soon); got.Outcome != echo.Connected {
			t.Errorf("udp from %s to %s: %v (%v)", from.Name(), dst, got.Outcome, got.Err)
		}
		made++
		return stagedRow(c.Agent(0), "probe").WouldDeny > than
	}
	testutil.WaitFor(t, time.Minute, "flows to be counted", func() bool { return more(0) })
	return func() {
		t.Helper()
		than := made
		testutil.WaitFor(t, time.Minute, "all flows so far to be counted", func() bool { return more(than) })
	}
}

// scrape returns the metrics of the agent on a node.
func scrape(t *testing.T, n *lab.Node) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return traffic.OpenTCP(n.Host, netip.MustParseAddrPort("127.0.0.1:9097"), soon)
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
