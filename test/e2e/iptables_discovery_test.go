package e2e

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// A pod that the agent does not know yet resolves its IPv6 gateway (D-18), and gets nothing else through. As soon as it is enforced, its
// first connection comes about.
func TestIPTablesLetAPodResolveItsGatewayBeforeItsPolicy(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		server := c.External("server")
		reached, err := server.ListenUDPAt(server.Addr6(), 99)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.ListenTCP(80); err != nil {
			t.Fatal(err)
		}
		early := c.Plug(c.Node(0), "early")
		conn, err := early.OpenUDP(netip.AddrPortFrom(server.Addr6(), 99))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		gateway := netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
		testutil.WaitFor(t, soon, "the gateway to answer", func() bool {
			if _, err := conn.Write([]byte("x")); err != nil && !errors.Is(err, unix.EHOSTUNREACH) {
				t.Fatal(err)
			}
			list, err := early.Netlink().NeighList(0, unix.AF_INET6)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(list, func(n netlink.Neigh) bool {
				return n.IP.Equal(gateway.AsSlice()) && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0
			})
		})
		const rule = " -A mgyA-spoofed -j DROP"
		dropped := func() string { // the counters of that rule
			saved, err := c.Node(0).Run(t.Context(), "", "ip6tables-"+flags[len(flags)-1]+"-save", "-c", "-t", "mangle")
			if err != nil {
				t.Fatal(err)
			}
			counters, _, found := strings.Cut(saved, rule)
			if !found {
				t.Fatalf("no rule%s:\n%s", rule, saved)
			}
			return counters[strings.LastIndexByte(counters, '\n')+1:]
		}
		before := dropped()
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, "a datagram of the pod to be dropped", func() bool { return dropped() != before })
		if n := reached.Received(); n != 0 {
			t.Errorf("%d datagrams of a pod that is not ready have arrived", n)
		}
		c.Declare(early)
		c.AwaitPolicies(early, 0, 0)
		if got := early.DialTCP(netip.AddrPortFrom(server.Addr6(), 80), soon); got.Outcome != lab.Connected {
			t.Errorf("the first connection of the pod: %+v", got)
		}
	})
}
