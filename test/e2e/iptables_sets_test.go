package e2e

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Sets that somebody empties close pods. The agent looks at them every half second, and repairs.
func TestEmptiedSetsAreRepairedSoon(t *testing.T) {
	testutil.RequireCommand(t, "ipset")
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, append(flags, noResync...)...)
		db, good, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "good"), c.Pod(c.Node(0), "bad")
		c.Serve(db.Host, 80)
		c.Policy("db", onlyGood)
		c.AwaitPolicies(db, 1, 0)
		c.Reach(good.Host, db.Host, 80, true)
		repairedInTime(t, func() time.Duration {
			if _, err := c.Node(0).Run(t.Context(), "", "ipset", "flush"); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			testutil.WaitFor(t, soon, "the sets to be repaired", func() bool {
				return echo.ExchangeUDP(good.Host, netip.AddrPortFrom(db.Addr4(), 80), []byte("x"), 50*time.Millisecond).Outcome == echo.Connected
			})
			took := time.Since(begun)
			t.Logf("repaired after %v", took)
			return took
		})
		c.Reach(bad.Host, db.Host, 80, false)
	})
}

// Somebody gives the name of a set of ours to a former copy of it, which has as many entries: one in which the server has the slot of a pod
// without policy. Somebody else gives the entry of our set that slot, and another one deletes our chains and then our sets.
func TestSetsAreSwappedAndDeletedUnderTraffic(t *testing.T) {
	testutil.RequireCommand(t, "ipset")
	forBackends(t, func(t *testing.T, flags ...string) {
		tool := "iptables-" + flags[len(flags)-1]
		c := newCluster(t, oneNode, append(flags, noResync...)...)
		server, client := c.Pod(c.Node(0), "server"), c.Pod(c.Node(0), "client")
		const set = "mgyA4-in"
		run := func(input, command string, args ...string) (string, error) {
			return c.Node(0).Run(t.Context(), input, command, args...)
		}
		former, err := run("", "ipset", "save", set)
		if err != nil {
			t.Fatal(err)
		}
		c.Policy("server", onlyOpen)
		c.Policy("mute", mute)
		c.AwaitPolicies(server, 1, 1)
		open, _ := c.Serve(server.Host, openPort)
		closed, _ := c.Serve(server.Host, closedPort)
		servers := [2]*echo.Server{open, closed}
		t.Run("swapped", func(t *testing.T) {
			testMeddling(t, c, servers, client, false, func() error {
				_, _ = run("", "ipset", "destroy", "theirs") // of the attempt before
				if _, err := run(strings.ReplaceAll(former, set, "theirs"), "ipset", "restore"); err != nil {
					return err
				}
				_, err := run("", "ipset", "swap", "theirs", set)
				return err
			})
			if list, err := run("", "ipset", "list", "-n"); err != nil || strings.Contains(list, "-new") {
				t.Errorf("after the repair there are the sets %s%v", list, err)
			}
		})
		t.Run("altered", func(t *testing.T) {
			var entries strings.Builder // of the server, as they were
			for line := range strings.Lines(former) {
				if strings.HasPrefix(line, "add ") && strings.Contains(line, server.Addr4().String()) {
					entries.WriteString(line)
				}
			}
			testMeddling(t, c, servers, client, false, func() error {
				_, err := run(entries.String(), "ipset", "restore", "-exist")
				return err
			})
		})
		t.Run("deleted", func(t *testing.T) {
			testMeddling(t, c, servers, client, false, func() error {
				for _, tool := range []string{tool, "ip6" + strings.TrimPrefix(tool, "ip")} {
					for _, table := range []string{"raw", "mangle", "filter"} {
						if _, err := run("*"+table+"\nCOMMIT\n", tool+"-restore"); err != nil { // without what was there
							return err
						}
					}
				}
				_, err := run("", "ipset", "destroy")
				return err
			})
		})
	})
}
