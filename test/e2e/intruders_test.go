package e2e

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// intruders are connections that policy denies, made while somebody has altered what enforces it.
type intruders struct {
	t     *testing.T
	end   chan struct{}
	doing sync.WaitGroup
	in    []net.Conn
}

// mute has the server open nothing. While all rules are gone, the kernel follows no connections, so the first packet afterwards of one that
// came in is in mid-flow: judged as its sender's own, be it the server's (D-20).
const mute = `{podSelector: {matchLabels: {app: server}}, policyTypes: [Egress]}`

// intrude tries to connect to a server all the time, and keeps the connections that come about.
func intrude(t *testing.T, from *lab.Host, to *echo.Server) *intruders {
	t.Helper()
	x := &intruders{t: t, end: make(chan struct{})}
	x.doing.Go(func() {
		for {
			select {
			case <-x.end:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if c, err := traffic.OpenTCP(from, to.Addr4(), 20*time.Millisecond); err == nil {
				x.in = append(x.in, c)
			}
		}
	})
	return x
}

// mustEnd stops trying, and demands that none of the connections goes on. It returns how many there were.
func (x *intruders) mustEnd() int {
	x.t.Helper()
	close(x.end)
	x.doing.Wait()
	var live atomic.Int32
	for _, c := range x.in { // at the same time: each may wait for an answer
		x.doing.Go(func() {
			if says(c) {
				live.Add(1)
			}
			c.Close()
		})
	}
	x.doing.Wait()
	if n := live.Load(); n > 0 {
		x.t.Errorf("%d of %d connections that policy denies go on after the repair", n, len(x.in))
	}
	return len(x.in)
}

// says reports whether a line gets to a server of echo and back.
func says(c net.Conn) bool {
	const line = "still here"
	_ = c.SetDeadline(time.Now().Add(never))
	if _, err := c.Write([]byte(line)); err != nil {
		return false
	}
	buffer := make([]byte, 256)
	for heard := ""; len(heard) < len(buffer); { // the server speaks first
		n, err := c.Read(buffer)
		if err != nil {
			return false
		}
		if heard += string(buffer[:n]); len(heard) >= len(line) && heard[len(heard)-len(line):] == line {
			return true
		}
	}
	return false
}

// Somebody gives an address outside of the cluster the class of a pod that policy admits. What comes in from there meanwhile ends with the
// repair.
func TestConnectionsThatDamageHasLetInEnd(t *testing.T) {
	testcluster.NeedsBPF(t, "the damage is done to BPF maps; the tests of faults of iptables have the same")
	c := newCluster(t, oneNode, "--resync-every", "500ms")
	client, server, out := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.External("out")
	c.Policy("server", `{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}`)
	c.AwaitPolicies(server, 1, 0)
	served, _ := c.Serve(server.Host, 80)
	p := openPinned(t, c.Agent(0))
	admitted, ok, err := p.maps.Addresses.Lookup(client.Addr4())
	if err != nil || !ok {
		t.Fatalf("read the client's address: found %v, %v", ok, err)
	}
	strangers := intrude(t, out.Host, served)
	_, logged := c.Agent(0).Warnings(t, 0)
	entry := bpf.HostInfoOf(out.Addr4(), bpf.AddrInfo{Class: admitted.Class})
	if err := p.maps.Map(bpf.MargayMapIp4Host).Put(bpfmaps.IP4(out.Addr4()), entry); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, soon, "the repair", func() bool {
		lines, _ := c.Agent(0).Warnings(t, logged)
		return len(lines) > 0
	})
	awaitProven(t, c.Agent(0), 2, "after the repair")
	if strangers.mustEnd() == 0 {
		t.Error("no connection came in: the test tests nothing")
	}
}
