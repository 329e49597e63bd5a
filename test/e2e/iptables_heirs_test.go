package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
)

// With iptables a pod that comes waits until connections of former owners of its address are removed. A large table is read beside the agent's other
// work: policy of others changes meanwhile, and a new pod waits for three readings at most, although another one comes and goes all the time.
func TestPodsThatFlapDelayNoOthers(t *testing.T) {
	var flags []string
	if !testcluster.IPTables() {
		testutil.RequireCommand(t, "iptables-legacy-restore")
		flags = []string{"--dataplane", "iptables", "--iptables-backend", "legacy"}
	}
	c := newCluster(t, oneNode, flags...)
	client, server, flaps := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.Pod(c.Node(0), "flaps")
	late := make([]*lab.Pod, 5)
	for i := range late {
		late[i] = c.Plug(c.Node(0), fmt.Sprint("late", i))
	}
	_, datagrams := c.Serve(server.Host, openPort)
	flow, err := traffic.StartUDPFlow(client.Host, datagrams.Addr4(), traffic.UDPFlowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var table *conntrack.Conn
	if err := c.Node(0).Do(func() (err error) { table, err = conntrack.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	fill(t, table, 70) // beyond three quarters the agent looks for connections to remove
	began := time.Now()
	if err := table.Dump(conntrack.IPv4, conntrack.Filter{}, func(conntrack.Entry) {}); err != nil {
		t.Fatal(err)
	}
	reading := time.Since(began)
	var changes, starts []time.Duration
	for i, pod := range late {
		c.Remove("pod-flaps")
		c.awaitGone(flaps)
		c.Declare(flaps)
		c.Remove("pod-flaps")
		began := time.Now()
		c.Declare(pod)
		c.Policy(fmt.Sprint("server", i), onlyOpen)
		c.AwaitPolicies(server, i+1, 0)
		changes = append(changes, time.Since(began))
		c.Declare(flaps)
		c.AwaitEndpoint(pod)
		starts = append(starts, time.Since(began))
	}
	t.Logf("the table is read in %v; policy changed after %v, pods could send after %v", reading, changes, starts)
	if worst := slices.Max(starts); worst > soon {
		t.Errorf("a new pod waited for %v", worst)
	}
	testutil.WaitFor(t, soon, "the flow to go on", func() bool { return flow.Result().Received > 0 })
	if r := flow.Stop(); r.Lost > 0 {
		t.Errorf("a flow of others: %+v", r)
	}
}
