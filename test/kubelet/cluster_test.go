package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/controlplane"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

const (
	planeEnv = "MARGAY_CLUSTER_BIN"      // directory of the control plane's commands
	nodeEnv  = "MARGAY_CLUSTER_NODE_BIN" // directory of the node's commands, and of the test's own
	agentEnv = "MARGAY_E2E_BINARY"

	agentImage = "ghcr.io/margay-project/margay:v0.1.0"
	podImage   = "margay.test/pod:1"
)

// cluster is a control plane and nodes of real parts.
type cluster struct {
	t          *testing.T
	node       *node   // the first one
	nodes      []*node // all
	plane      *controlplane.ControlPlane
	kubeconfig string
	bin        string // of the control plane
	client     *http.Client
}

func newCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	testutil.Privileged(t)
	planeBin, nodeBin, agent := testutil.Getenv(planeEnv), testutil.Getenv(nodeEnv), testutil.Getenv(agentEnv)
	if planeBin == "" || nodeBin == "" || agent == "" {
		t.Fatalf("run this test with `make kubelet`, which sets %s, %s and %s", planeEnv, nodeEnv, agentEnv)
	}
	c := &cluster{t: t, bin: planeBin}
	dir, err := os.MkdirTemp("", "mgy-kubelet-") // not in memory: the runtime's layers are there, too
	c.must(err)
	t.Cleanup(func() { c.must(process.RemoveDir(dir)) })
	l, err := lab.New()
	c.must(err)
	t.Cleanup(func() { c.must(l.Close()) })
	control, err := l.AddExternal("control")
	c.must(err)
	c.plane, err = controlplane.Start(t.Context(), controlplane.Options{Bin: planeBin, Host: control, Dir: dir})
	c.must(err)
	t.Cleanup(func() { c.must(c.plane.Stop()) })
	c.kubeconfig, err = c.plane.AdminKubeconfig()
	c.must(err)
	for i := range nodes {
		c.addNode(l, fmt.Sprintf("n%d", i+1), nodeBin, dir)
	}
	c.node = c.nodes[0]
	c.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: c.fromNode}}
	t.Cleanup(c.dump)
	c.load(agent)
	testutil.WaitFor(t, soon, "the nodes to register", func() bool {
		return len(strings.Fields(c.kubectl("get", "nodes", "-o", "name"))) == nodes
	})
	return c
}

func (c *cluster) addNode(l *lab.Lab, name, bin, dir string) {
	c.t.Helper()
	n, err := l.AddNode(name)
	c.must(err)
	proxy, err := c.plane.StartKubeProxy(n, "iptables", n.PodPrefixes()...)
	c.must(err)
	c.t.Cleanup(proxy.Kill)
	dir = filepath.Join(dir, name)
	c.must(os.Mkdir(dir, 0o755))
	c.nodes = append(c.nodes, startNode(c.t, n, c.plane, bin, dir))
}

// load gives the runtimes the images that the cluster needs: those that a registry would have.
func (c *cluster) load(agent string) {
	c.t.Helper()
	pod, tools := filepath.Join(c.node.bin, "pod"), c.node.file("tools")
	c.must(copyTools(tools, "iptables", "ip6tables", "nft"))
	margay := image{Name: agentImage, Files: []string{agent}, Entrypoint: []string{"/usr/local/bin/margay"}, Cmd: []string{"run"}}
	withTools := margay
	withTools.Name, withTools.Root = agentImage+"-iptables", tools
	for _, i := range []image{
		{Name: podImage, Files: []string{pod}, Entrypoint: []string{"/usr/local/bin/pod"}},
		{Name: "registry.k8s.io/pause:3.10", Files: []string{pod}, Entrypoint: []string{"/usr/local/bin/pod"}},
		margay, withTools,
	} {
		c.loadImage(i)
	}
}

func (c *cluster) loadImage(i image) {
	c.t.Helper()
	path := c.node.file("image.tar")
	c.must(i.write(path))
	for _, n := range c.nodes {
		n.load(i.Name, path)
	}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// fromNode connects as a program of the node does.
func (c *cluster) fromNode(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = c.node.Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// run runs kubectl as the cluster's administrator.
func (c *cluster) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	return c.node.Run(ctx, "", filepath.Join(c.bin, "kubectl"), append([]string{"--kubeconfig", c.kubeconfig}, args...)...)
}

// kubectl is run for commands that must succeed.
func (c *cluster) kubectl(args ...string) string {
	c.t.Helper()
	out, err := c.run(args...)
	c.must(err)
	return out
}

// write applies a manifest.
func (c *cluster) write(manifest string) {
	c.t.Helper()
	path := c.node.file("manifest.yaml")
	c.must(os.WriteFile(path, []byte(manifest), 0o600))
	c.kubectl("apply", "-f", path)
}

// pod makes a pod of the namespace shop. Its label app is its name.
func (c *cluster) pod(name string) {
	c.t.Helper()
	c.write(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %q, args: ["80", "8080"], readinessProbe: {httpGet: {port: 80, path: /dial}, periodSeconds: 1}}]
`, name, podImage))
}

func (c *cluster) address(name string) netip.Addr {
	c.t.Helper()
	a, err := netip.ParseAddr(c.kubectl("-n", "shop", "get", "pod", name, "-o", "jsonpath={.status.podIP}"))
	c.must(err)
	return a
}

// dial has one pod connect to another's port, and says how that went.
func (c *cluster) dial(from, to netip.Addr, port int) (string, error) {
	r, err := c.client.Get(fmt.Sprintf("http://%s/dial?to=%s:%d", from, to, port))
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(r.Body)
	return string(text), errors.Join(err, r.Body.Close())
}

// reach demands that one pod reaches another's port, or does not, soon and then a second time.
func (c *cluster) reach(from, to string, port int, want bool) {
	c.t.Helper()
	a, b := c.address(from), c.address(to)
	as := func() bool {
		got, err := c.dial(a, b, port)
		c.must(err)
		return (got == "connected") == want
	}
	testutil.WaitFor(c.t, soon, fmt.Sprintf("%s to reach %s:%d: %t", from, to, port, want), as)
	if !as() {
		c.t.Errorf("%s reaches %s:%d: not %t the second time", from, to, port, want)
	}
}

// agent runs margay in the agent's container.
func (c *cluster) agent(args ...string) string {
	c.t.Helper()
	return c.kubectl(append([]string{"-n", "kube-system", "exec", "ds/margay", "--", "margay"}, args...)...)
}

// dump logs what the cluster looks like if the test has failed.
func (c *cluster) dump() {
	if !c.t.Failed() {
		return
	}
	for _, args := range []string{"get pods,nodes,ds -A -o wide", "get events -A", "-n kube-system logs ds/margay --tail=40", "-n kube-system describe pods"} {
		out, err := c.run(strings.Fields(args)...)
		c.t.Log(args, err, "\n", out)
	}
}
