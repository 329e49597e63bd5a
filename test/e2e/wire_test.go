package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// badWire makes what the node sends onto the segment late, out of order, twice or lost.
func badWire(n *lab.Node) error {
	link, err := n.Netlink().LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0 of %s: %w", n.Name(), err)
	}
	q := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		netlink.NetemQdiscAttrs{Latency: 10_000, Jitter: 3_000, Loss: 3, ReorderProb: 25, ReorderCorr: 50, Duplicate: 2})
	if err := n.Netlink().QdiscAdd(q); err != nil {
		return fmt.Errorf("add netem to eth0 of %s: %w", n.Name(), err)
	}
	return nil
}

// On a wire that loses, delays, reorders and repeats packets, while policy changes: allowed connections come about and
// carry everything, denied ones never do.
func TestNothingIsMisjudgedOnABadWire(t *testing.T) {
	c := newCluster(t, []string{"n1", "n2"})
	for i := range 2 {
		testutil.RequireKernel(t, "netem", badWire(c.Node(i)))
	}
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(1), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	open, _ := c.Serve(server.Host, 80)
	denied, _ := c.Serve(server.Host, 81)
	var targets []traffic.Target
	var streams []*echo.Stream
	for _, v6 := range []bool{false, true} {
		targets = append(targets,
			traffic.Target{Addr: netip.AddrPortFrom(server.Addr(v6), 80), Allowed: true, Timeout: 15 * time.Second},
			traffic.Target{Addr: netip.AddrPortFrom(server.Addr(v6), 81), Timeout: time.Second})
		s, err := echo.StartStream(client.Host, netip.AddrPortFrom(server.Addr(v6), 80), echo.StreamOptions{Interval: 5 * time.Millisecond, Timeout: 15 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	prober, err := traffic.StartProber(client.Host, traffic.ProberOptions{Interval: 50 * time.Millisecond}, targets...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15 {
		c.Policy("more", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{podSelector: {matchLabels: {role: x%d}}}], ports: [{port: %d}]}]}`, i%3, 1000+i))
		before, accepted := prober.Results(), open.Accepted()
		testutil.WaitFor(t, 6*soon, fmt.Sprintf("connections after change %d", i), func() bool {
			return open.Accepted() > accepted+4 && prober.Results()[1].Attempts > before[1].Attempts+2
		})
	}
	for _, r := range prober.Stop() {
		if r.Wrong != 0 || r.Attempts == 0 {
			t.Errorf("%d of %d attempts at %s wrong (allowed: %v), outcomes %v, first %+v", r.Wrong, r.Attempts,
				r.Target.Addr, r.Target.Allowed, r.Outcomes, r.FirstWrong)
		}
	}
	for i, s := range streams {
		if r := s.Stop(); r.Received == 0 || r.Connects != 1 || r.Errors != 0 {
			t.Errorf("stream %d: %+v", i, r)
		}
	}
	if n := denied.Accepted(); n != 0 {
		t.Errorf("the denied port accepted %d connections", n)
	}
}
