package e2e

import (
	"encoding/binary"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// mostFilled is how many connections a test makes at most: some 100 MB of the kernel's memory.
const mostFilled = 300_000

// The kernel's table of connections is full: live flows go on, new ones fail whatever policy says, the agent says so, and nothing is
// allowed that policy denies. Once there is room, all is as before.
func TestTheTableOfConnectionsIsFull(t *testing.T) {
	testutil.RequireCommand(t, "iptables-legacy-restore")
	c := newCluster(t, oneNode, "--dataplane", "iptables", "--iptables-backend", "legacy")
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	open, datagrams := c.Serve(server.Host, openPort)
	closed, _ := c.Serve(server.Host, closedPort)
	live, err := echo.StartStream(client.Host, open.Addr4(), echo.StreamOptions{Interval: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	flow, err := traffic.StartUDPFlow(client.Host, datagrams.Addr4(), traffic.UDPFlowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var table *conntrack.Conn
	if err := c.Node(0).Do(func() (err error) { table, err = conntrack.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	said := func(what string, after int) {
		t.Helper()
		testutil.WaitFor(t, soon, "the agent to say that the table "+what, func() bool {
			text, err := os.ReadFile(c.Agent(0).Log)
			return err == nil && strings.Contains(string(text[after:]), "the kernel's table of connections "+what)
		})
	}
	repairedInTime(t, func() time.Duration {
		_, from := c.Agent(0).Warnings(t, 0)
		filled := fill(t, table, 100)
		said("is full", from)
		before := live.Result().Received
		for range 5 {
			if got := echo.DialTCP(client.Host, open.Addr4(), never/4); got.Established {
				t.Errorf("a new connection although the table is full: %v", got.Outcome)
			}
			if got := echo.DialTCP(client.Host, closed.Addr4(), never/4); got.Established {
				t.Errorf("denied: %v", got.Outcome)
			}
		}
		testutil.WaitFor(t, soon, "the live flow to go on", func() bool { return live.Result().Received > before+20 })
		if n, err := table.DeleteAddresses(conntrack.IPv4, func(a netip.Addr) bool { return filling.Contains(a) }); err != nil || n < filled {
			t.Fatalf("%d of %d connections removed: %v", n, filled, err)
		}
		begun := time.Now()
		testutil.WaitFor(t, soon, "an allowed connection", func() bool {
			return echo.DialTCP(client.Host, open.Addr4(), never/4).Outcome == echo.Connected
		})
		took := time.Since(begun)
		said("has room again", from)
		return took
	})
	c.Reach(client.Host, server.Host, openPort, true)
	c.Reach(client.Host, server.Host, closedPort, false)
	if r := live.Stop(); r.Errors > 0 || r.Connects != 1 {
		t.Errorf("the live connection: %+v", r)
	}
	if r := flow.Stop(); r.Lost > 0 {
		t.Errorf("the live UDP flow: %+v", r)
	}
}

// filling has the addresses of connections that fill the table.
var filling = netip.MustParsePrefix("100.64.0.0/10")

// fill fills so many percent of the table with connections that the kernel does not give up for others.
func fill(t *testing.T, table *conntrack.Conn, percent uint32) (made int) {
	t.Helper()
	_, most, err := table.Usage()
	if err != nil {
		t.Fatal(err)
	}
	if most > mostFilled {
		t.Skipf("a table of %d connections is too large to be filled", most)
	}
	most = most * percent / 100
	base := binary.BigEndian.Uint32(filling.Addr().AsSlice())
	for n := uint32(0); n < most+1000; {
		var batch []conntrack.Flow
		for range 1000 {
			var a [4]byte
			binary.BigEndian.PutUint32(a[:], base+n)
			n++
			batch = append(batch, conntrack.Flow{Timeout: time.Hour, Original: conntrack.Tuple{Src: netip.AddrFrom4(a),
				Dst: filling.Addr(), Protocol: unix.IPPROTO_UDP, SrcPort: 1, DstPort: 1}})
		}
		for _, err := range table.Insert(batch) {
			if err == nil {
				made++
			}
		}
		if entries, _, err := table.Usage(); err != nil || entries >= most {
			return made
		}
	}
	return made
}
