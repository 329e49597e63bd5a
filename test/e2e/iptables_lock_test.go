package e2e

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// lockEnv is for how many seconds somebody holds the lock of iptables.
const lockEnv = "MARGAY_E2E_LOCK"

// ownRun gives agents a directory /run of their own, and returns it: the lock in it is not that of this machine.
func ownRun(t *testing.T, c *cluster) string {
	t.Helper()
	testutil.RequireCommand(t, "unshare")
	dir := t.TempDir()
	for _, a := range c.Agents {
		a.Adjust = func(cmd *exec.Cmd) {
			binary := cmd.Path
			cmd.Path = "/usr/bin/env"
			cmd.Args = append([]string{"env", "unshare", "-m", "sh", "-c", `mount --bind "$0" /run && exec "$@"`, dir, binary}, cmd.Args[1:]...)
		}
	}
	return dir
}

// checkWaits checks whether the row of a pod, and an explanation of what client sends it, say that its policy waits for somebody.
func checkWaits(t *testing.T, c *cluster, pod, client *lab.Pod, waits bool, who string) {
	t.Helper()
	const text = "its newest policy is not in force yet"
	row := c.Row(pod)
	if row == nil {
		t.Errorf("%s is not listed", pod.Name())
		return
	}
	said := strings.Contains(row.Error, text) && strings.Contains(row.Error, who) && row.Condition == inspect.ConditionPending
	if said != waits || !waits && row.Error+row.Condition != "" {
		t.Errorf("of %s the list says %q, %q; want that its policy waits: %t", pod.Name(), row.Condition, row.Error, waits)
	}
	if pod == client {
		return
	}
	e, err := c.Agents[pod.Node()].Explain(client.Name(), pod.Name()+":82/tcp")
	if err != nil {
		t.Errorf("explain: %v", err)
		return
	}
	if note := strings.Join(e.NotEnforced, "\n"); strings.Contains(note, pod.Name()+": "+text) != waits || strings.Contains(note, client.Name()+":") {
		t.Errorf("of %s an explanation says %q; want that its policy waits: %t", pod.Name(), note, waits)
	}
}

// Somebody holds the lock of iptables: what is in force stays, changes wait, new pods stay closed, the agent answers and names who it
// is, and of each pod whether it waits. Once the lock is free everything is applied. That a free lock wakes the agent is tested in pkg/dataplane/iptables.
func TestTheLockOfIPTablesIsHeld(t *testing.T) {
	testutil.RequireCommand(t, "iptables-legacy-restore")
	hold := time.Duration(testutil.Number(t, lockEnv, 3)) * time.Second
	c := newCluster(t, oneNode, "--dataplane", "iptables", "--iptables-backend", "legacy")
	run := ownRun(t, c)
	agent := c.Agent(0)
	agent.Kill()
	agent.Start()
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	if _, err := echo.ListenTCP(server.Host, togglePort); err != nil {
		t.Fatal(err)
	}
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	free := holdLock(t, run)
	held := time.Now()
	c.Policy("toggle", `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 82}]}]}`)
	c.Write("draft", `apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: draft, namespace: shop}
spec: {order: 1, selector: app == 'server', types: [Ingress]}
`)
	late := c.Plug(c.Node(0), "late")
	c.Serve(late.Host, 80)
	c.Declare(late)
	who := "process " + strconv.Itoa(os.Getpid())
	testutil.WaitFor(t, soon, "the agent to name who holds the lock", func() bool {
		lines, _ := agent.Warnings(t, 0)
		return strings.Contains(strings.Join(lines, ""), who)
	})
	testutil.WaitFor(t, soon, "the new pod to be known", func() bool { return c.Row(late) != nil })
	toggle := netip.AddrPortFrom(server.Addr4(), togglePort)
	for {
		for pod, waits := range map[*lab.Pod]bool{server: true, late: true, client: false} {
			checkWaits(t, c, pod, client, waits, who)
		}
		if got := echo.DialTCP(client.Host, toggle, never); got.Established {
			t.Error("a change was applied while the lock was held")
		}
		if got := echo.DialTCP(client.Host, netip.AddrPortFrom(late.Addr4(), 80), never); got.Established {
			t.Error("a new pod is open before its policy is there")
		}
		if a, err := agent.Ask("status"); err != nil || a.Status == nil {
			t.Errorf("the agent does not answer: %v", err)
		}
		if time.Since(held) > hold {
			break
		}
	}
	testutil.WaitFor(t, soon, "the staged policy to be said to wait", func() bool {
		return strings.Contains(stagedRow(agent, "draft").NotEvaluated, "shop/server: they are being compiled")
	})
	tr.Some("while the lock is held")
	released := free()
	c.AwaitPolicies(server, 3, 0) // with the staged one
	if got := echo.DialTCP(client.Host, toggle, soon); got.Outcome != echo.Connected {
		t.Errorf("a change is said to be in force, and a connection that it allows ends with %v", got)
	}
	took := time.Since(released) // less than 0.5 s on a quiet machine
	if took > overtime {
		t.Errorf("a change was applied %v after the lock was free", took)
	}
	c.AwaitEndpoint(late)
	for _, pod := range []*lab.Pod{server, late, client} {
		checkWaits(t, c, pod, client, false, "")
	}
	testutil.WaitFor(t, soon, "the staged policy to be evaluated", func() bool { row := stagedRow(agent, "draft"); return row.Endpoints == 1 && row.NotEvaluated == "" })
	c.Reach(client.Host, late.Host, 80, true)
	tr.Stop()
	lines, _ := agent.Warnings(t, 0)
	said := strings.Count(strings.Join(lines, "\n"), who)
	t.Logf("the lock was held for %v; the change was applied %v after that; %d lines named who held it", time.Since(held)-took, took, said)
	if said > 6 { // one for each step that could not be taken, not for each attempt
		t.Errorf("%d lines name who holds the lock:\n%s", said, strings.Join(lines, "\n"))
	}
}

// holdLock holds the lock of agents with a directory /run of their own until free is called, which returns when it was free.
func holdLock(t *testing.T, run string) (free func() time.Time) {
	t.Helper()
	lock, err := os.Open(filepath.Join(run, filepath.Base(os.Getenv(testcluster.TablesLockEnv))))
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() time.Time {
		if err := lock.Close(); err != nil { // which frees it
			t.Fatal(err)
		}
		return time.Now()
	}
}

// Somebody flushes our chains while somebody else holds the lock: the agent says that they are not repaired yet, and repairs them once the
// lock is free.
func TestARepairThatWaitsForTheLock(t *testing.T) {
	testutil.RequireCommand(t, "iptables-legacy-restore")
	c := newCluster(t, oneNode, append([]string{"--dataplane", "iptables", "--iptables-backend", "legacy"}, noResync...)...)
	run := ownRun(t, c)
	c.Agent(0).Kill()
	c.Agent(0).Start()
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.Policy("mute", mute)
	c.AwaitPolicies(server, 1, 1)
	open, _ := c.Serve(server.Host, openPort)
	closed, _ := c.Serve(server.Host, closedPort)
	repairedInTime(t, func() time.Duration {
		return meddled(t, c, [2]*echo.Server{open, closed}, client, true, func() error {
			_, logged := c.Agent(0).Warnings(t, 0)
			free := holdLock(t, run)
			if _, err := c.Node(0).Run(t.Context(), "*mangle\n-F\nCOMMIT\n", "iptables-legacy-restore", "--noflush"); err != nil { // with another lock
				return err
			}
			testutil.WaitFor(t, soon, "the agent to say that the repair waits", func() bool {
				lines, _ := c.Agent(0).Warnings(t, logged)
				return strings.Contains(strings.Join(lines, ""), "not repaired yet")
			})
			free()
			return nil
		}) // since the lock is free
	})
}
