package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/controlplane"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

const soon = 3 * time.Minute

// node is a machine with a container runtime and a kubelet of its own: in the network namespace of a node of the lab, and in namespaces of
// mounts and processes that end with the runtime. Its /run and its BPF file system are its own.
type node struct {
	*lab.Node
	t      *testing.T
	bin    string // directory of the commands
	dir    string // for everything that is written, in that of the control plane
	cgroup string // below the root of every hierarchy
	inside int    // process whose namespaces are the node's
}

const containerdConfig = `version = 3
root = "%[1]s/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "margay.test/pod:1"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["%[2]s"]
    conf_dir = "%[1]s/net.d"
    use_internal_loopback = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
`

// The feature gate has the kubelet go on where the machine does not let it change the kernel's settings.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: %[3]s}, webhook: {enabled: false}, anonymous: {enabled: true}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
featureGates: {KubeletInUserNamespace: true}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [10.96.0.10]
resolvConf: ""
localStorageCapacityIsolation: false
evictionHard: {memory.available: 10Mi}
nodeStatusReportFrequency: 10s
imageGCHighThresholdPercent: 100
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "cni", "prefixes": [%s], "state": "%s"}]}`

// startNode starts containerd and the kubelet.
func startNode(t *testing.T, n *lab.Node, plane *controlplane.ControlPlane, bin, dir string) *node {
	t.Helper()
	k := &node{Node: n, t: t, bin: bin, dir: dir, cgroup: filepath.Base(filepath.Dir(dir)) + "-" + n.Name()}
	k.prepare()
	script := `set -e
mount --make-rshared /
mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
export PATH="$1:$PATH"
exec "$1/containerd" --config "$2"`
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private",
		"sh", "-c", script, "sh", bin, k.file("containerd.toml"))
	runtime := k.start("containerd", cmd)
	t.Cleanup(k.removeCgroups)
	t.Cleanup(runtime.Kill)
	k.inside = k.child(runtime.PID())
	testutil.WaitFor(t, soon, "containerd to answer", func() bool { return k.command("ctr", "version").Run() == nil })
	kubeconfig, err := plane.Kubeconfig("system:node:"+n.Name(), "system:nodes", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	kubelet := k.start("kubelet", k.command("kubelet", "--config", k.file("kubelet.yaml"), "--kubeconfig", kubeconfig, "--root-dir", k.file("kubelet"),
		"--hostname-override", n.Name(), "--node-ip", n.Addr4().String()+","+n.Addr6().String(), "--cert-dir", k.file("pki"), "--v", "2"))
	t.Cleanup(kubelet.Kill)
	return k
}

func (k *node) file(name string) string { return filepath.Join(k.dir, name) }

func (k *node) prepare() {
	k.t.Helper()
	var prefixes []string
	for _, p := range k.PodPrefixes() {
		prefixes = append(prefixes, fmt.Sprintf("%q", p))
	}
	for _, d := range []string{"net.d", "addresses", "kubelet"} {
		k.must(os.MkdirAll(k.file(d), 0o755))
	}
	for name, text := range map[string]string{
		"containerd.toml":   fmt.Sprintf(containerdConfig, k.dir, k.bin),
		"kubelet.yaml":      fmt.Sprintf(kubeletConfig, k.dir, k.cgroup, filepath.Join(filepath.Dir(k.dir), "ca.crt")),
		"net.d/10.conflist": fmt.Sprintf(networkConfig, strings.Join(prefixes, ", "), k.file("addresses")),
	} {
		k.must(os.WriteFile(k.file(name), []byte(text), 0o600))
	}
	for _, h := range k.hierarchies() {
		k.must(os.MkdirAll(filepath.Join(h, k.cgroup), 0o755))
	}
	// A new group of cpuset has no processors.
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		if all, err := os.ReadFile("/sys/fs/cgroup/cpuset/" + f); err == nil {
			k.must(os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", k.cgroup, f), all, 0))
		}
	}
}

// hierarchies are the mount points of control groups.
func (k *node) hierarchies() []string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	all, err := filepath.Glob("/sys/fs/cgroup/*")
	k.must(err)
	return all
}

func (k *node) removeCgroups() {
	for _, h := range k.hierarchies() {
		root := filepath.Join(h, k.cgroup)
		var groups []string
		filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		for i := len(groups) - 1; i >= 0; i-- {
			testutil.WaitFor(k.t, soon, "processes to leave "+groups[i], func() bool {
				err := syscall.Rmdir(groups[i])
				return err == nil || errors.Is(err, fs.ErrNotExist)
			})
		}
	}
}

func (k *node) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *node) start(name string, cmd *exec.Cmd) *process.Process {
	k.t.Helper()
	p, err := process.Start(k.Host, k.file(name+".log"), cmd)
	k.must(err)
	k.t.Cleanup(func() {
		if k.t.Failed() {
			k.t.Logf("%s:\n%s", name, p.Tail(40))
		}
	})
	return p
}

// child waits for the process that unshare forks.
func (k *node) child(parent int) (pid int) {
	k.t.Helper()
	testutil.WaitFor(k.t, soon, "the node's first process", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		k.must(err)
		_, err = fmt.Sscan(string(text), &pid)
		return err == nil
	})
	return pid
}

// command is a command of bin in the node's namespaces.
func (k *node) command(name string, args ...string) *exec.Cmd {
	return k.nsenter(filepath.Join(k.bin, name), args...)
}

// nsenter is a command of this machine in the node's namespaces.
func (k *node) nsenter(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-m", "-p", "-n", "-t", fmt.Sprint(k.inside), name}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+k.bin+":"+os.Getenv("PATH"))
	return cmd
}

// load gives the runtime the image in a file.
func (k *node) load(name, path string) {
	k.t.Helper()
	if out, err := k.command("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", path).CombinedOutput(); err != nil {
		k.t.Fatalf("import image %s: %v: %s", name, err, out)
	}
}
