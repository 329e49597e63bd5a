package e2e

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// TestCleanupLosesNoPacket: programs are detached one after the other, while a pod and an outside host send over old connections to a pod
// that policy opens to them. With iptables the chains are removed so. Policy is in force until then, and none afterwards.
func TestCleanupLosesNoPacket(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server, outside := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.External("outside")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		_, udp := c.Serve(server.Host, openPort)
		c.Serve(server.Host, closedPort)
		c.Reach(client.Host, server.Host, closedPort, false)
		asked := []netip.AddrPort{netip.AddrPortFrom(server.Addr(false), openPort), netip.AddrPortFrom(server.Addr(true), openPort)}
		crossing, err := traffic.OpenCrossing(client, server, openPort, asked...)
		if err != nil {
			t.Fatal(err)
		}
		var flows []live
		for _, from := range []*lab.Host{client.Host, outside.Host} {
			for i, v6 := range []bool{false, true} {
				stream, err := echo.StartStream(from, asked[i], echo.StreamOptions{Interval: time.Millisecond, Timeout: soon})
				if err != nil {
					t.Fatal(err)
				}
				flow, err := traffic.StartUDPFlow(from, netip.AddrPortFrom(server.Addr(v6), udp.Port()), traffic.UDPFlowOptions{Interval: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				l := live{t, stream, flow}
				l.awaitMore("at first")
				flows = append(flows, l)
			}
		}
		a := c.Agent(0)
		a.Terminate()
		out, err := c.Node(0).Run(context.Background(), "", testcluster.Build(t), "cleanup", "--bpffs", a.BPFFS, "--socket", a.Socket)
		if err != nil {
			t.Fatalf("cleanup: %v: %s", err, out)
		}
		for _, l := range flows {
			l.awaitMore("after cleanup")
		}
		c.Reach(client.Host, server.Host, closedPort, true)
		for _, l := range flows {
			l.stopUndisturbed()
		}
		if r := crossing.Stop(soon); r.LostAll != 0 || r.LostBare != 0 || r.Unseen != 0 || r.Left == 0 {
			t.Errorf("segments between the pods: %+v", r)
		}
	})
}
