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
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
)

// TestAStagedPolicyIsFoundOutOnLiveTraffic: one that would deny everything, on real veths. Nothing is denied, each new
// connection is counted once, packets of open ones are not, and the counts go on with the next agent.
func TestAStagedPolicyIsFoundOutOnLiveTraffic(t *testing.T) {
	c := newCluster(t, oneNode)
	db, web := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "web")
	c.Serve(db.Host, 80)
	c.Reach(web.Host, db.Host, 80, true) // before there is one: not counted
	row := func() (found inspect.StagedRow) {
		t.Helper()
		answer, err := c.Agent(0).Ask("staged")
		if err != nil {
			return found
		}
		for _, r := range answer.Staged {
			if r.Name == "deny-all" && r.Direction == "ingress" {
				found = r
			}
		}
		return found
	}
	c.Write("staged", `apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: deny-all, namespace: shop}
spec: {selector: app == 'db', types: [Ingress]}
`)
	testutil.WaitFor(t, time.Minute, "the staged policy applies", func() bool { return row().Endpoints == 1 })
	// The second of two evaluations is compiled in a plan of its own, behind the one with the change.
	testutil.WaitFor(t, time.Minute, "connections are counted", func() bool {
		c.Reach(web.Host, db.Host, 80, true)
		return row().WouldDeny > 0
	})
	counted := func() inspect.StagedRow { // copies of packets are counted a little later
		last := row()
		for same := 0; testcluster.IPTables() && same < 10; same++ {
			time.Sleep(20 * time.Millisecond)
			if now := row(); now.WouldDeny != last.WouldDeny {
				last, same = now, 0
			}
		}
		return last
	}
	before := counted()
	c.Reach(web.Host, db.Host, 80, true) // TCP and UDP, over both families
	if after := counted(); after.WouldDeny != before.WouldDeny+uint64(2*len(db.Addrs())) || after.WouldAllow != 0 {
		t.Errorf("%d would be denied, %d allowed; before %d connections %d", after.WouldDeny, after.WouldAllow, 2*len(db.Addrs()), before.WouldDeny)
	}
	const series = `margay_staged_flows_total{direction="ingress",namespace="shop",verdict="deny"} `
	if want, lines := fmt.Sprintf("%s%d\n", series, row().WouldDeny), scrape(t, c.Node(0)); !strings.Contains(lines, want) {
		t.Errorf("metrics have no line %s:\n%s", want, lines)
	}
	testutil.WaitFor(t, time.Minute, "examples", func() bool { return len(row().Examples) > 0 })
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
	testutil.WaitFor(t, time.Minute, "it is gone", func() bool { return row().Name == "" })
	c.Reach(web.Host, db.Host, 80, true)
}

// scrape returns the metrics of the agent on a node.
func scrape(t *testing.T, n *lab.Node) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return n.OpenTCP(netip.MustParseAddrPort("127.0.0.1:9097"), time.Second)
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
