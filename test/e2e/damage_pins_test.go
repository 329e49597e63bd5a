package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
)

// Somebody removes everything that the agent has pinned, or unmounts the file system. The kernel has policy and flows only as long as the
// agent runs then, so it pins them again: when it is killed, policy stays enforced and flows go on, also under the next agent.
func TestPolicyOutlivesTheAgentAfterItsPinsWereRemoved(t *testing.T) {
	testcluster.NeedsBPF(t, "only BPF has pins")
	c := newCluster(t, oneNode, "--resync-every", "500ms")
	client, server, a := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server"), c.Agent(0)
	pods := []*lab.Pod{client, server, c.Plug(c.Node(0), "undeclared")}
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	tr := c.StartTraffic(client, server)
	for what, remove := range map[string]func() error{
		"the directory is removed":     func() error { return os.RemoveAll(bpfmaps.InstanceDir(a.BPFFS, "")) },
		"the file system is unmounted": func() error { return unix.Unmount(a.BPFFS, unix.MNT_DETACH) },
	} {
		t.Log(what)
		before := 0
		testutil.WaitFor(t, soon, "all links to be pinned", func() bool {
			n, err := pinnedLinks(a, pods)
			before = n
			return err == nil
		})
		_, length := a.Warnings(t, 0)
		if err := remove(); err != nil {
			t.Fatal(err)
		}
		testutil.WaitFor(t, soon, "everything to be pinned again", func() bool {
			lines, _ := a.Warnings(t, length)
			said := strings.Contains(strings.Join(lines, "\n"), "the pins of maps had been removed by somebody else")
			n, err := pinnedLinks(a, pods)
			return said && err == nil && n == before
		})
		a.Kill()
		tr.Some("without an agent, after " + what)
		a.Start()
		c.AwaitPolicies(server, 1, 0)
		tr.Some("with the next agent, after " + what)
		if n, err := pinnedLinks(a, pods); n != before || err != nil {
			t.Errorf("%d links are pinned after the restart, %d before: %v", n, before, err)
		}
	}
	tr.Stop()
}

// pinnedLinks is the number of links that an agent has pinned; an error: some of those that there have to be are missing, of pods' interfaces
// or of hooks.
func pinnedLinks(a *testcluster.Process, pods []*lab.Pod) (int, error) {
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: a.BPFFS})
	if err != nil {
		return 0, err
	}
	defer m.Close()
	list, err := os.ReadDir(m.LinkDir())
	if err != nil {
		return 0, err
	}
	names := " "
	for _, entry := range list {
		names += entry.Name() + " "
	}
	wanted := []string{" judge-forward-ip4", " judge-forward-ip6", " guard-local_out", " guard-pre_routing"}
	for _, p := range pods {
		wanted = append(wanted, fmt.Sprintf(" %d-ingress ", p.IfIndex()), fmt.Sprintf(" %d-egress ", p.IfIndex()))
	}
	for _, want := range wanted {
		if !strings.Contains(names, want) {
			return 0, fmt.Errorf("no link %s", want)
		}
	}
	return len(list), nil
}
