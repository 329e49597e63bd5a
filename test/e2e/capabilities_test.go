package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	agentSet   = "../../deploy/base/daemonset.yaml"
	cleanupSet = "../../deploy/cleanup/daemonset.yaml"
)

// capabilities are the numbers of those that a DaemonSet of ours may ask for, by the name Kubernetes has for them.
var capabilities = map[corev1.Capability]uint{
	"BPF": unix.CAP_BPF, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "NET_ADMIN": unix.CAP_NET_ADMIN, "NET_RAW": unix.CAP_NET_RAW,
	"PERFMON": unix.CAP_PERFMON, "SYS_ADMIN": unix.CAP_SYS_ADMIN, "SYS_RESOURCE": unix.CAP_SYS_RESOURCE,
}

// granted are the capabilities that the DaemonSet's first container has.
func granted(t *testing.T, daemonSet string) []corev1.Capability {
	t.Helper()
	text, err := os.ReadFile(daemonSet)
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatalf("%s: %v", daemonSet, err)
	}
	containers := append(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers...)
	if len(containers) == 0 || containers[0].SecurityContext == nil || containers[0].SecurityContext.Capabilities == nil {
		t.Fatalf("%s: want a container with capabilities", daemonSet)
	}
	c := containers[0].SecurityContext.Capabilities
	if !slices.Equal(c.Drop, []corev1.Capability{"ALL"}) || len(c.Add) == 0 {
		t.Fatalf("%s: drops %v and adds %v, want all dropped and some added", daemonSet, c.Drop, c.Add)
	}
	return c.Add
}

// writes are the directories an agent writes to.
func writes(p *testcluster.Process) []string { return []string{p.BPFFS, filepath.Dir(p.Socket)} }

// confinedCluster is a cluster of one node, whose agent has not been started.
func confinedCluster(t *testing.T, has []corev1.Capability) (*cluster, *testcluster.Process) {
	t.Helper()
	c := newCluster(t, nil)
	n, err := c.Lab.AddNode("a")
	if err != nil {
		t.Fatal(err)
	}
	p := testcluster.NewProcess(t, n, c.Dir)
	p.Adjust = func(cmd *exec.Cmd) { confined(t, cmd, has, []string{c.Dir}, writes(p)) }
	c.Agents[n] = p
	return c, p
}

// TestTheDaemonSetsCapabilitiesAreEnough: the agent as the DaemonSet runs it enforces, takes over what an earlier one
// left, even with pins missing, and its tools work beside it.
func TestTheDaemonSetsCapabilitiesAreEnough(t *testing.T) {
	testcluster.NeedsBPF(t, "the container of this test has no iptables, and the shortcut is BPF's")
	has := granted(t, agentSet)
	c, agent := confinedCluster(t, has)
	agent.Start()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	want := uint64(0)
	for _, name := range has {
		want |= 1 << capabilities[name]
	}
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if line := fmt.Sprintf("%s:\t%016x\n", set, want); !strings.Contains(string(status), line) {
			t.Fatalf("the agent's capabilities are not those of the DaemonSet, want %q in:\n%s", line, status)
		}
	}

	n := c.Node(0)
	web, api, other := c.Pod(n, "web"), c.Pod(n, "api"), c.Pod(n, "other")
	c.Serve(api.Host, 80)
	c.Policy("api", "{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}")
	c.AwaitPolicies(api, 1, 0)
	c.Reach(web.Host, api.Host, 80, true)
	c.Reach(other.Host, api.Host, 80, false)
	flows := tool(t, agent, has, "show", "flows")
	if !strings.Contains(flows, "shortcut") {
		t.Errorf("pods of the node do not talk past its stack:\n%s", flows)
	}

	agent.Kill()
	c.Reach(other.Host, api.Host, 80, false)
	agent.Start()
	c.Reach(other.Host, api.Host, 80, false)

	// Without their pins policies are out of reach of the next agent, which may not open maps by number.
	agent.Kill()
	if err := os.RemoveAll(filepath.Join(bpfmaps.InstanceDir(agent.BPFFS, ""), fmt.Sprint("v", bpfmaps.Layout), "slot")); err != nil {
		t.Fatal(err)
	}
	agent.Start()
	c.Reach(web.Host, api.Host, 80, true)
	c.Reach(other.Host, api.Host, 80, false)
	c.Policy("api", "{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}")
	testutil.WaitFor(t, soon, "the change to be enforced", func() bool {
		return echo.DialTCP(other.Host, addrPort(api.Host, 80), never).Outcome == echo.Connected
	})
	c.Reach(other.Host, api.Host, 80, true)
	c.Reach(web.Host, api.Host, 80, false)

	for _, command := range [][]string{
		{"show", "rules", "shop/api"}, {"show", "drops"}, {"show", "endpoints"}, {"explain", "shop/web", "shop/other:80/tcp"}, {"check"},
	} {
		if out := tool(t, agent, has, command...); out == "" {
			t.Errorf("margay %s says nothing", strings.Join(command, " "))
		}
	}
	agent.Terminate()
	tool(t, agent, granted(t, cleanupSet), "cleanup")
	c.Reach(web.Host, api.Host, 80, true)
	if _, err := os.Stat(filepath.Join(agent.BPFFS, "margay")); !os.IsNotExist(err) {
		t.Errorf("cleanup leaves its directory: %v", err)
	}
}

// tool runs a tool beside the agent, as in its container, and returns what it prints.
func tool(t *testing.T, agent *testcluster.Process, has []corev1.Capability, args ...string) string {
	t.Helper()
	cmd := exec.Command(testcluster.Build(t), append(args, "--bpffs", agent.BPFFS, "--socket", agent.Socket)...)
	confined(t, cmd, has, nil, writes(agent))
	var out, diagnostics strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err := agent.Node.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Errorf("margay %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), diagnostics.String())
	}
	return out.String()
}

func addrPort(h *lab.Host, port uint16) netip.AddrPort { return netip.AddrPortFrom(h.Addrs()[0], port) }

// TestNoCapabilityOfTheDaemonSetCanGo: without any one of them the agent ends with one line that names it.
func TestNoCapabilityOfTheDaemonSetCanGo(t *testing.T) {
	testcluster.NeedsBPF(t, "it needs NET_ADMIN and NET_RAW only")
	has := granted(t, agentSet)
	for i, without := range has {
		t.Run(string(without), func(t *testing.T) {
			_, agent := confinedCluster(t, slices.Delete(slices.Clone(has), i, i+1))
			line := refused(t, agent)
			if !strings.Contains(line, "needs CAP_"+string(without)+",") ||
				!strings.Contains(line, "operation not permitted") && !strings.Contains(line, "permission denied") {
				t.Errorf("want one line that says CAP_%s is missing, and what the kernel refused", without)
			}
		})
	}
}

// TestWithoutABPFFileSystemTheAgentSaysWhoIsToMountIt: it may not do so itself.
func TestWithoutABPFFileSystemTheAgentSaysWhoIsToMountIt(t *testing.T) {
	testcluster.NeedsBPF(t, "it needs no file system for BPF")
	_, agent := confinedCluster(t, granted(t, agentSet))
	agent.BPFFS = t.TempDir()
	agent.Flags[slices.Index(agent.Flags, "--bpffs")+1] = agent.BPFFS
	line := refused(t, agent)
	if !strings.Contains(line, "mount -t bpf bpf /sys/fs/bpf") {
		t.Error("it does not say how")
	}
}

// refused starts an agent that is to end at once, and returns the one line it says.
func refused(t *testing.T, agent *testcluster.Process) string {
	t.Helper()
	agent.Launch()
	select {
	case err := <-agent.Exited:
		agent.Cmd = nil
		if err == nil {
			t.Error("the agent ended well")
		}
	case <-time.After(soon):
		t.Fatal("the agent runs")
	}
	log, err := os.ReadFile(agent.Log)
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(log))
	t.Log(line)
	if strings.Contains(line, "\n") {
		t.Error("want one line")
	}
	return line
}
