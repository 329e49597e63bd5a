package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
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

// confinement is how a container of the DaemonSet runs: as root with few capabilities and no way to get more, and with
// everything read-only but what is mounted writable.
type confinement struct {
	Capabilities []uint
	Writable     []string // directories
	Command      []string
}

// confinedEnv has the confinement of a process that is to confine itself before it becomes its command.
const confinedEnv = "MARGAY_E2E_CONFINED"

func init() {
	if text := os.Getenv(confinedEnv); text != "" {
		fmt.Fprintln(os.Stderr, "confine:", confine(text))
		os.Exit(126)
	}
}

// confine does not return if it succeeds. Capabilities and mounts are the thread's, which the command inherits.
func confine(text string) error {
	runtime.LockOSThread()
	var c confinement
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := readOnlyBut(c.Writable); err != nil {
		return err
	}
	for capability := range uint(64) {
		if slices.Contains(c.Capabilities, capability) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err == unix.EINVAL {
			break // the kernel knows no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	os.Unsetenv(confinedEnv)
	return fmt.Errorf("%s: %w", c.Command[0], syscall.Exec(c.Command[0], c.Command, os.Environ()))
}

// readOnlyBut makes all file systems read-only for this process, except below some directories.
func readOnlyBut(writable []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	const recursive = unix.AT_RECURSIVE
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", recursive, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	for _, dir := range writable {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only root: %w", err)
	}
	for _, dir := range writable {
		if err := unix.MountSetattr(unix.AT_FDCWD, dir, recursive, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("writable %s: %w", dir, err)
		}
	}
	return nil
}

// confined makes a command run as in the DaemonSet's container, with these capabilities.
func confined(t *testing.T, cmd *exec.Cmd, has []corev1.Capability, writable ...string) {
	t.Helper()
	c := confinement{Writable: writable, Command: append([]string{cmd.Path}, cmd.Args[1:]...)}
	for _, name := range has {
		number, known := capabilities[name]
		if !known {
			t.Fatalf("capability %s has no number here", name)
		}
		c.Capabilities = append(c.Capabilities, number)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args, cmd.Env = self, []string{self}, append(os.Environ(), confinedEnv+"="+string(text))
}

// bpffs is the agent's BPF file system.
func (p *process) bpffs() string { return p.flags[slices.Index(p.flags, "--bpffs")+1] }

// confinedCluster is a cluster of one node, whose agent has not been started.
func confinedCluster(t *testing.T, has []corev1.Capability) (*cluster, *process) {
	t.Helper()
	c := newCluster(t, nil)
	n, err := c.lab.AddNode("a")
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, n, c.dir)
	p.adjust = func(cmd *exec.Cmd) { confined(t, cmd, has, p.bpffs(), filepath.Dir(p.socket)) }
	c.agents[n] = p
	return c, p
}

// TestTheDaemonSetsCapabilitiesAreEnough: the agent as the DaemonSet runs it enforces, takes over what an earlier one
// left, and its tools work beside it.
func TestTheDaemonSetsCapabilitiesAreEnough(t *testing.T) {
	has := granted(t, agentSet)
	c, agent := confinedCluster(t, has)
	agent.start()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.cmd.Process.Pid))
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

	n := c.node(0)
	web, api, other := c.pod(n, "web"), c.pod(n, "api"), c.pod(n, "other")
	c.serve(api.Host, 80)
	c.policy("api", "{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}")
	c.awaitPolicies(api, 1, 0)
	c.reach(web.Host, api.Host, 80, true)
	c.reach(other.Host, api.Host, 80, false)
	flows := tool(t, agent, has, "show", "flows")
	if !strings.Contains(flows, "shortcut") {
		t.Errorf("pods of the node do not talk past its stack:\n%s", flows)
	}

	agent.kill()
	c.reach(other.Host, api.Host, 80, false)
	agent.start()
	c.policy("api", "{podSelector: {matchLabels: {app: api}}, ingress: [{from: [{podSelector: {matchLabels: {app: other}}}]}]}")
	testutil.WaitFor(t, soon, "the change to be enforced", func() bool {
		return other.DialTCP(addrPort(api.Host, 80), never).Outcome == lab.Connected
	})
	c.reach(other.Host, api.Host, 80, true)
	c.reach(web.Host, api.Host, 80, false)

	for _, command := range [][]string{
		{"show", "rules", "shop/api"}, {"show", "drops"}, {"show", "endpoints"}, {"explain", "shop/web", "shop/other:80/tcp"}, {"check"},
	} {
		if out := tool(t, agent, has, command...); out == "" {
			t.Errorf("margay %s says nothing", strings.Join(command, " "))
		}
	}
	agent.terminate()
	tool(t, agent, granted(t, cleanupSet), "cleanup")
	c.reach(web.Host, api.Host, 80, true)
	if _, err := os.Stat(filepath.Join(agent.bpffs(), "margay")); !os.IsNotExist(err) {
		t.Errorf("cleanup leaves its directory: %v", err)
	}
}

// tool runs a tool beside the agent, as in its container, and returns what it prints.
func tool(t *testing.T, agent *process, has []corev1.Capability, args ...string) string {
	t.Helper()
	cmd := exec.Command(build(t), append(args, "--bpffs", agent.bpffs(), "--socket", agent.socket)...)
	confined(t, cmd, has, agent.bpffs(), filepath.Dir(agent.socket))
	var out, diagnostics strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err := agent.node.Start(cmd)
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
	has := granted(t, agentSet)
	for i, without := range has {
		t.Run(string(without), func(t *testing.T) {
			_, agent := confinedCluster(t, slices.Delete(slices.Clone(has), i, i+1))
			agent.launch()
			select {
			case err := <-agent.exited:
				agent.cmd = nil
				if err == nil {
					t.Error("the agent ended well")
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the agent runs")
			}
			log, err := os.ReadFile(agent.log)
			if err != nil {
				t.Fatal(err)
			}
			line := strings.TrimSpace(string(log))
			t.Log(line)
			if strings.Contains(line, "\n") || !strings.Contains(line, "needs CAP_"+string(without)+",") ||
				!strings.Contains(line, "operation not permitted") && !strings.Contains(line, "permission denied") {
				t.Errorf("want one line that says CAP_%s is missing, and what the kernel refused", without)
			}
		})
	}
}
