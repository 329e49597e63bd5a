package e2e

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// switches are how often the dataplane is switched: MARGAY_E2E_SWITCHES, or 4.
func switches(t *testing.T) int { return int(testutil.Number(t, "MARGAY_E2E_SWITCHES", 4)) }

// modes are the dataplanes in turn, with both backends of iptables.
var modes = [][]string{
	{"--dataplane", "iptables", "--iptables-backend", "legacy"}, {"--dataplane", "bpf"},
	{"--dataplane", "iptables", "--iptables-backend", "nft"}, {"--dataplane", "bpf"},
}

// switching is a node under traffic whose agents have other flags, one after the other.
type switching struct {
	c              *cluster
	client, server *lab.Pod
	agent          *testcluster.Process
	flags          []string // beside those of a mode
	traffic        *testcluster.Traffic
}

func newSwitching(t *testing.T, flags ...string) *switching {
	c := newCluster(t, oneNode, flags...)
	s := &switching{c: c, client: c.Pod(c.Node(0), "client"), server: c.Pod(c.Node(0), "server"), agent: c.Agent(0)}
	c.Policy("server", onlyOpen)
	c.Policy("client", "{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress]}") // so that answers need their flow
	c.AwaitPolicies(s.server, 1, 0)
	c.AwaitPolicies(s.client, 1, 0)
	s.flags, s.traffic = s.agent.Flags, c.StartTraffic(s.client, s.server)
	return s
}

// next kills the agent. The one that is started next has the flags of a mode.
func (s *switching) next(mode ...string) {
	s.agent.Kill()
	s.agent.Flags = slices.Concat(s.flags, mode)
}

// TestSwitchingTheDataplaneUnderTraffic: an agent in one mode comes after one in the other, there and back, while connections are
// open and new ones are opened. No packet that is allowed is lost, nothing that is denied passes, and nothing of the other mode is
// left.
func TestSwitchingTheDataplaneUnderTraffic(t *testing.T) {
	s := newSwitching(t)
	for _, flagsOfMode := range modes[:2] {
		mode := flagsOfMode[1]
		s.next(flagsOfMode...)
		s.agent.Start()
		s.traffic.Some("in mode " + mode)
		s.c.Reach(s.client.Host, s.server.Host, 81, false)
		s.c.Reach(s.server.Host, s.client.Host, 80, false)
		if answer, err := s.agent.Ask("status"); err != nil || !strings.HasPrefix(answer.Status.Dataplane, mode) || answer.Status.Chosen.How != "configured" {
			t.Errorf("status in mode %s: %+v, %v", mode, answer.Status, err)
		}
		testutil.WaitFor(t, soon, "all endpoints to be said to be enforced in mode "+mode, func() bool {
			answer, err := s.agent.Ask("status")
			return err == nil && answer.Status.Endpoints > 0 && answer.Status.Enforced == answer.Status.Endpoints
		})
		chains, sets := leftOfIPTables(t, s.c)
		_, err := os.Stat(filepath.Join(s.agent.BPFFS, "margay"))
		if bpf := err == nil; bpf != (mode == "bpf") || chains != (mode == "iptables") || sets != (mode == "iptables") {
			t.Errorf("in mode %s: BPF is there: %v, chains: %v, sets: %v", mode, bpf, chains, sets)
		}
	}
	withoutCuts(t, s.traffic)
}

// TestChangingTheBackendUnderTraffic: an agent that writes with one backend of iptables comes after one that wrote with the other,
// which was killed. No packet that is allowed is lost, nothing that is denied passes, and nothing of the other backend is left.
func TestChangingTheBackendUnderTraffic(t *testing.T) {
	s := newSwitching(t, "--dataplane", "iptables", "--iptables-backend", "legacy")
	for _, backend := range []string{"nft", "legacy"} {
		s.next("--iptables-backend", backend)
		s.agent.Start()
		s.traffic.Some("with " + backend)
		s.c.Reach(s.client.Host, s.server.Host, 81, false)
		s.c.Reach(s.server.Host, s.client.Host, 80, false)
		for _, other := range []string{"nft", "legacy"} {
			saved, err := s.c.Node(0).Run(context.Background(), "", "iptables-"+other+"-save")
			if there := strings.Contains(saved, "mgy"); err != nil || there != (other == backend) {
				t.Errorf("with %s, chains of %s are there: %v, %v", backend, other, there, err)
			}
		}
	}
	withoutCuts(t, s.traffic)
}

// TestAgentsAreKilledInASwitch: at random moments, from the start of a process on, whichever mode comes next. MARGAY_E2E_SWITCHES is how often.
func TestAgentsAreKilledInASwitch(t *testing.T) {
	seed := testutil.Number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", seedEnv, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newSwitching(t)
	for i := range switches(t) {
		mode := modes[random.IntN(len(modes))]
		s.next(mode...)
		s.agent.Launch()
		time.Sleep(time.Duration(random.Int64N(int64(1200 * time.Millisecond)))) // the moment does not matter
		if i%4 == 3 {
			s.agent.Kill()
			s.agent.Start()
			s.traffic.Some("in mode " + strings.Join(mode, " "))
		}
	}
	s.next(modes[1]...)
	s.agent.Start()
	s.traffic.Some("in the end")
	s.c.Reach(s.client.Host, s.server.Host, 81, false)
	if chains, sets := leftOfIPTables(t, s.c); chains || sets {
		t.Errorf("in the end there are chains: %v, sets: %v", chains, sets)
	}
	withoutCuts(t, s.traffic)
}

// withoutCuts ends traffic: streams and flows of datagrams are as if nothing had happened, and what policy denies was never allowed.
func withoutCuts(t *testing.T, tr *testcluster.Traffic) {
	t.Helper()
	for _, r := range tr.Prober.Stop() {
		if r.Wrong != 0 {
			t.Errorf("%d of %d attempts at %s are wrong: %v", r.Wrong, r.Attempts, r.Target.Addr, r.Outcomes)
		}
	}
	for i := range tr.Streams {
		if r := tr.Streams[i].Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			t.Errorf("stream %d: %+v", i, r)
		}
		if r := tr.Flows[i].Stop(); r.Lost != 0 || r.Refused != 0 || r.SendErrors != 0 {
			t.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	if n := tr.Denied.Accepted(); n != 0 {
		t.Errorf("the denied port accepted %d connections", n)
	}
}

// TestCleanupRemovesWhatTheIPTablesDataplaneLeaves: chains, sets and marks; then packets pass as if Margay had never run.
func TestCleanupRemovesWhatTheIPTablesDataplaneLeaves(t *testing.T) {
	for _, backend := range []string{"legacy", "nft"} {
		t.Run(backend, func(t *testing.T) {
			c := newCluster(t, oneNode, "--dataplane", "iptables", "--iptables-backend", backend)
			client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
			c.Serve(server.Host, 80)
			c.Serve(server.Host, 81)
			c.Policy("server", onlyOpen)
			c.AwaitPolicies(server, 1, 0)
			c.Reach(client.Host, server.Host, 80, true)
			c.Reach(client.Host, server.Host, 81, false)
			a := c.Agent(0)
			a.Terminate()
			c.Reach(client.Host, server.Host, 81, false)
			run := func() string {
				out, err := c.Node(0).Run(context.Background(), "", testcluster.Build(t), "cleanup", "--bpffs", a.BPFFS, "--socket", a.Socket)
				if err != nil {
					t.Fatalf("cleanup: %v: %s", err, out)
				}
				return out
			}
			out := run()
			for _, want := range []string{"chains ", "sets ", "marks "} {
				if !strings.Contains(out, want) {
					t.Errorf("cleanup does not say that it removed %s:\n%s", want, out)
				}
			}
			if chains, sets := leftOfIPTables(t, c); chains || sets {
				t.Errorf("after cleanup there are chains: %v, sets: %v", chains, sets)
			}
			c.Reach(client.Host, server.Host, 81, true)
			if out := run(); strings.Contains(out, "sets") {
				t.Errorf("the second cleanup removes something:\n%s", out)
			}
		})
	}
}

// leftOfIPTables reports what the node has of the iptables dataplane.
func leftOfIPTables(t *testing.T, c *cluster) (chains, sets bool) {
	t.Helper()
	testutil.RequireCommand(t, "ipset")
	for _, save := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		out, err := c.Node(0).Run(context.Background(), "", save)
		if err != nil {
			t.Fatal(err)
		}
		chains = chains || strings.Contains(out, "mgy")
	}
	out, err := c.Node(0).Run(context.Background(), "", "ipset", "list", "-name")
	if err != nil {
		t.Fatal(err)
	}
	return chains, strings.Contains(out, "mgy")
}
