package e2e

import (
	"fmt"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Somebody restores tables as they were saved under a former policy, which has allowed the connections and whose slot has the same number.
// It judges until the repair, also if mangle alone is restored: filter drops only what no policy has judged. Without the rules of filter
// nothing passes.
func TestRestoredTablesAreRepairedUnderTraffic(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		tool := "iptables-" + flags[len(flags)-1]
		c := newCluster(t, oneNode, append(flags, noResync...)...)
		server, client := c.Pod(c.Node(0), "server"), c.Pod(c.Node(0), "client")
		save := func(tables ...string) (text string) {
			for _, table := range tables {
				out, err := c.Node(0).Run(t.Context(), "", tool+"-save", "-t", table)
				if err != nil {
					t.Fatal(err)
				}
				text += out
			}
			return text
		}
		open, _ := c.Serve(server.Host, openPort)
		closed, _ := c.Serve(server.Host, closedPort)
		c.Policy("server", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: %d}, {port: %d}]}]}`, openPort, closedPort))
		c.Policy("mute", mute)
		c.AwaitPolicies(server, 1, 1)
		older := []string{save("mangle"), save("mangle", "filter"), save("raw", "mangle", "nat", "filter")}
		c.Policy("server", onlyOpen)
		testutil.WaitFor(t, soon, "the policy to be another", func() bool { return !echo.DialTCP(client.Host, closed.Addr4(), never/4).Established })
		for what, text := range map[string]string{"filter of before Margay": "*filter\nCOMMIT\n", "an older mangle": older[0],
			"older mangle and filter": older[1], "an older ruleset": older[2]} {
			t.Run(what, func(t *testing.T) {
				testMeddling(t, c, [2]*echo.Server{open, closed}, client, !slices.Contains(older, text), func() error {
					_, err := c.Node(0).Run(t.Context(), text, tool+"-restore")
					return err
				})
			})
		}
	})
}
