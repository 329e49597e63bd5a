package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// proxyRules are what kube-proxy does at each of its runs, in few lines: chains are made or emptied, filled, and old ones deleted, with
// jumps from built-in chains behind those of others.
func proxyRules(round int) string {
	chain, old := fmt.Sprintf("KUBE-SVC-%d", round), fmt.Sprintf("KUBE-SVC-%d", round-1)
	gone := ""
	if round > 0 {
		gone = fmt.Sprintf(":%s - [0:0]\n-X %s\n", old, old)
	}
	return fmt.Sprintf(`*nat
:KUBE-SERVICES - [0:0]
:%[1]s - [0:0]
-A KUBE-SERVICES -d 10.96.0.%[2]d/32 -p tcp -m tcp --dport 80 -j %[1]s
-A %[1]s -p tcp -j DNAT --to-destination 10.65.9.9:80
%[3]sCOMMIT
*filter
:KUBE-FORWARD - [0:0]
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
*mangle
:KUBE-PROXY-CANARY - [0:0]
COMMIT
`, chain, round+1, gone)
}

// kube-proxy replaces its chains again and again while ours change: neither sees anything of the other, and nothing is misjudged.
func TestKubeProxyReplacesItsChainsWhileOursChange(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		tool := "iptables-" + flags[len(flags)-1]
		run := func(input string, command string, args ...string) string {
			out, err := c.Node(0).Run(context.Background(), input, command, args...)
			if err != nil {
				t.Fatalf("%s %v: %v\n%s", command, args, err, input)
			}
			return out
		}
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		run(proxyRules(0), tool+"-restore", "-w", "5", "--noflush")
		for table, rule := range map[string]string{"nat": "PREROUTING -j KUBE-SERVICES", "filter": "FORWARD -j KUBE-FORWARD"} {
			run("", tool, append([]string{"-w", "5", "-t", table, "-A"}, strings.Fields(rule)...)...)
		}
		tr := c.StartTraffic(client, server)
		_, logged := c.Agent(0).Warnings(t, 0)
		const rounds = 20
		for round := range rounds {
			c.Policy("more", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: %d}]}]}`, 1000+round))
			run(proxyRules(round+1), tool+"-restore", "-w", "5", "--noflush", "--counters")
		}
		c.AwaitPolicies(server, 2, 0)
		tr.Some("after all rounds")
		tr.Stop()
		if lines := otherWarnings(t, c, tool, logged); len(lines) > 0 {
			t.Errorf("the agent says of kube-proxy's chains:\n%s", strings.Join(lines, "\n"))
		}
		nat, filter := run("", tool+"-save", "-t", "nat"), run("", tool+"-save", "-t", "filter")
		if !strings.Contains(nat, fmt.Sprintf("-A KUBE-SERVICES -d 10.96.0.%d/32", rounds+1)) || strings.Count(filter, "-A KUBE-FORWARD") != 3 {
			t.Errorf("kube-proxy's chains are others than it wrote:\n%s%s", nat, filter)
		}
	})
}

// otherWarnings flushes a chain of the agent in the last table that it compares, waits until the agent has noticed, and returns what
// it has warned of beside that. By then it has compared all tables with what others have done before.
func otherWarnings(t *testing.T, c *cluster, tool string, from int) (lines []string) {
	t.Helper()
	const chain = "mgyA-unjudged"
	if _, err := c.Node(0).Run(t.Context(), "", "ip6"+strings.TrimPrefix(tool, "ip"), "-w", "5", "-t", "filter", "-F", chain); err != nil {
		t.Fatal(err)
	}
	own := func(line string) bool { return strings.Contains(line, chain) && strings.Contains(line, "IPv6") }
	testutil.WaitFor(t, soon, "the agent to notice that "+chain+" is empty", func() bool {
		lines, _ = c.Agent(0).Warnings(t, from)
		return slices.ContainsFunc(lines, own)
	})
	return slices.DeleteFunc(lines, own)
}

// Another agent puts a jump to a chain that accepts before ours, in both tables, again and again. Ours is first again soon, and its chain
// and rule stay, behind ours.
func TestAnotherAgentsJumpsStayBehindOurs(t *testing.T) {
	forBackends(t, func(t *testing.T, flags ...string) {
		tool := "iptables-" + flags[len(flags)-1]
		c := newCluster(t, oneNode, append(flags, noResync...)...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		after := c.Pod(c.Node(0), "after") // connects after repairs only
		c.Policy("server", onlyOpen)
		c.AwaitPolicies(server, 1, 0)
		open, _ := c.Serve(server.Host, openPort)
		closed, _ := c.Serve(server.Host, closedPort)
		theirs := ""
		for _, table := range []string{"mangle", "filter"} {
			theirs += "*" + table + "\n:fw-FORWARD - [0:0]\n-A fw-FORWARD -j ACCEPT\n-I FORWARD 1 -j fw-FORWARD\nCOMMIT\n"
		}
		order := func(table string) string {
			saved, err := c.Node(0).Run(context.Background(), "", tool+"-save", "-t", table)
			if err != nil {
				t.Fatal(err)
			}
			var targets []string
			for _, line := range strings.Split(saved, "\n") {
				if !strings.HasPrefix(line, "-A FORWARD ") {
					continue
				}
				words := strings.Fields(line) // the target is the last of them
				if target := words[len(words)-1]; len(targets) == 0 || target != targets[len(targets)-1] || target == "fw-FORWARD" {
					targets = append(targets, target)
				}
			}
			return strings.Join(targets, " ")
		}
		p, err := traffic.StartProber(client.Host, traffic.ProberOptions{Interval: 5 * time.Millisecond}, traffic.Target{Addr: open.Addr4(), Allowed: true}, traffic.Target{Addr: closed.Addr4()})
		if err != nil {
			t.Fatal(err)
		}
		round := 0
		again := func() time.Duration {
			if _, err := c.Node(0).Run(context.Background(), theirs, tool+"-restore", "-w", "5", "--noflush"); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			behind := strings.Repeat(" fw-FORWARD", round+1)
			testutil.WaitFor(t, soon, "our jumps to be first", func() bool {
				return order("mangle") == "mgyA-FORWARD"+behind && order("filter") == "mgyA-unjudged"+behind
			})
			took := time.Since(begun) // less than 0.5 s on a quiet machine
			crossed, err := traffic.OpenCrossing(after, server, openPort, open.Addr4())
			if err != nil {
				t.Fatal(err)
			}
			for range 4 { // some of the prober's began before the repair
				if got := echo.DialTCP(client.Host, closed.Addr4(), never/4); got.Established {
					t.Error("after the repair a denied connection passed")
				}
				if got := echo.DialTCP(after.Host, open.Addr4(), soon); got.Outcome != echo.Connected {
					t.Errorf("after the repair an allowed connection: %+v", got)
				}
			}
			if r := crossed.Stop(soon); r.LostAll > 0 || r.Unseen > 0 || r.Begun < 4 {
				t.Errorf("after the repair allowed connections: %+v", r)
			}
			r := p.Results()[1]
			t.Logf("first again after %v; %d of %d denied connections passed so far", took, r.Wrong, r.Attempts)
			round++
			return took
		}
		for range 3 {
			repairedInTime(t, again)
		}
		// Packets that table mangle no longer judges are dropped by table filter for as long as ours is first there alone.
		r := p.Stop()[0]
		t.Logf("%d of %d allowed connections failed, first %+v", r.Wrong, r.Attempts, r.FirstWrong)
	})
}

// ofNftables is a node with a client and a server, whose policy admits connections to the first of two ports, and an agent that finds
// alterations by others in nftables without comparing everything.
func ofNftables(t *testing.T) (c *cluster, client *lab.Pod, servers [2]*echo.Server) {
	t.Helper()
	testutil.RequireCommand(t, "nft")
	testutil.RequireCommand(t, "iptables-nft-restore")
	c = newCluster(t, oneNode, append([]string{"--dataplane", "iptables", "--iptables-backend", "nft"}, noResync...)...)
	client = c.Pod(c.Node(0), "client")
	server := c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.Policy("mute", mute)
	c.AwaitPolicies(server, 1, 1)
	servers[0], _ = c.Serve(server.Host, openPort)
	servers[1], _ = c.Serve(server.Host, closedPort)
	return c, client, servers
}

// nft flush ruleset takes both tables at once. Everything is there again soon; connections that were denied and came through meanwhile
// are counted, and end.
func TestAFlushedRulesetIsWrittenAgain(t *testing.T) {
	c, client, servers := ofNftables(t)
	live, err := echo.StartStream(client.Host, servers[0].Addr4(), echo.StreamOptions{Interval: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		testMeddling(t, c, servers, client, false, func() error {
			_, err := c.Node(0).Run(t.Context(), "", "nft", "flush", "ruleset")
			return err
		})
	}
	if r := live.Stop(); r.Errors > 0 || r.Connects != 1 {
		t.Errorf("a live flow that policy allows: %+v", r)
	}
}

// Somebody makes our tables dormant, so that the kernel asks none of their chains. They are active again soon, and after the start of an
// agent that was not there meanwhile. While table mangle alone is dormant, table filter drops what is denied.
func TestDormantTablesAreMadeActive(t *testing.T) {
	c, client, servers := ofNftables(t)
	sleep := func(tables ...string) func() error {
		return func() error {
			var errs []error
			for _, table := range tables {
				_, err := c.Node(0).Run(t.Context(), "add table ip "+table+" { flags dormant; }\n", "nft", "-f", "-")
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}
	}
	live, err := echo.StartStream(client.Host, servers[0].Addr4(), echo.StreamOptions{Interval: 2 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	testMeddling(t, c, servers, client, true, sleep("mangle"))
	testMeddling(t, c, servers, client, false, sleep("mangle", "filter"))
	c.Agent(0).Kill()
	if err := sleep("mangle", "filter")(); err != nil {
		t.Fatal(err)
	}
	c.Agent(0).Start()
	awaitProven(t, c.Agent(0), 2, "after an agent has found its tables dormant")
	if got := echo.DialTCP(client.Host, servers[1].Addr4(), never/4); got.Established {
		t.Error("a denied connection is established")
	}
	if r := live.Stop(); r.Errors > 0 || r.Connects != 1 {
		t.Errorf("a live flow that policy allows: %+v", r)
	}
}
