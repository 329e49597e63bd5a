package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// Somebody removes everything that the agent has pinned, or unmounts the file system. The kernel has policy and flows only as long as the
// agent runs then, so it pins them again: when it is killed, policy stays enforced and flows go on, also under the next agent.
func TestPolicyOutlivesTheAgentAfterItsPinsWereRemoved(t *testing.T) {
	testcluster.NeedsBPF(t, "only BPF has pins")
	c := newCluster(t, oneNode, "--resync-every", "500ms")
	client, server, a := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.Agent(0)
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for what, remove := range map[string]func() error{
		"the directory is removed":     func() error { return os.RemoveAll(bpfmaps.InstanceDir(a.BPFFS, "")) },
		"the file system is unmounted": func() error { return unix.Unmount(a.BPFFS, unix.MNT_DETACH) },
	} {
		t.Log(what)
		before, err := pinnedLinks(a)
		if err != nil {
			t.Fatal(err)
		}
		_, length := a.Warnings(t, 0)
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, "everything to be pinned again", func() bool {
			lines, _ := a.Warnings(t, length)
			said := strings.Contains(strings.Join(lines, "\n"), "the pins of maps had been removed by somebody else")
			n, err := pinnedLinks(a)
			return said && err == nil && n == before
		})
		a.Kill()
		tr.Some("without an agent, after " + what)
		a.Start()
		c.AwaitPolicies(server, 1, 0)
		tr.Some("with the next agent, after " + what)
		if n, err := pinnedLinks(a); n != before || err != nil {
			t.Errorf("%d links are pinned after the restart, %d before: %v", n, before, err)
		}
	}
	tr.Stop()
}

// pinnedLinks is the number of links that an agent has pinned; an error: some of those that there have to be are missing.
func pinnedLinks(a *testcluster.Process) (int, error) {
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: a.BPFFS})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	list, err := os.ReadDir(m.LinkDir())
	if err != nil {
		return 0, err
	}
	names := ""
	for _, entry := range list {
		names += entry.Name() + " "
	}
	for _, want := range []string{"-ingress ", "-egress ", "judge-forward-ip4", "judge-forward-ip6", "guard-"} {
		if !strings.Contains(names, want) {
			return 0, errors.New("no link " + want)
		}
	}
	return len(list), nil
}
