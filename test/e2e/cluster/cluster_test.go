// Package cluster proves the agent on a real cluster: API server, controllers, scheduler, kube-proxy and etcd as they are
// released, on the nodes and pods of a lab, with real traffic.
package cluster

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"

	"github.com/margay-project/margay/internal/kubelet"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/controlplane"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

const (
	soon  = time.Minute            // for what must come
	never = 200 * time.Millisecond // for what must not
)

// options say what a test's cluster is like; the zero value is two nodes with iptables kube-proxies and agents.
type options struct {
	nodes     int
	nodeNames []string                // instead of nodes; default n1, n2, …
	nodeAddrs map[string][]netip.Addr // instead of the lab's
	proxy     string                  // kube-proxy's mode: iptables (default), nftables, or none
	podRanges []netip.Prefix          // what kube-proxy takes for pods, instead of the control plane's PodRanges
	noAgents  bool
	noRBAC    bool     // the test gives the agent its rights
	flags     []string // further flags of every agent
	// waitForPolicy makes pods wait for their endpoint-status file, as Calico's CNI plugin does.
	waitForPolicy bool
}

// cluster is a running cluster. It lasts as long as its test.
type cluster struct {
	t       testing.TB
	options options
	dir     string // for everything that is written
	lab     *lab.Lab
	control *lab.External // host of the control plane
	plane   *controlplane.ControlPlane
	nodes   []*node

	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	mapping sync.Mutex
	rounds  int // of settle
	// clusterPolicies: agents follow ClusterNetworkPolicies, so settle is about them, too.
	clusterPolicies bool
	// calicoGroup is the group of Calico's kinds that agents follow and settle is about; empty: none.
	calicoGroup string
}

// node is a node with what runs on it.
type node struct {
	*lab.Node
	pods    []netip.Prefix // what its pods' addresses come from
	kubelet *kubelet.Kubelet
	proxy   *process.Process // nil: none
	agent   *agent           // nil: none
}

// newCluster starts a cluster: its nodes are ready, and their agents, if it has any.
func newCluster(t testing.TB, o options) *cluster {
	t.Helper()
	bin := binaries(t)
	if !o.noAgents {
		agentBinary(t)
	}
	c := &cluster{t: t, options: o}
	var err error
	if c.dir, err = process.NewDir(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.must(process.RemoveDir(c.dir)) })
	if c.lab, err = lab.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.must(c.lab.Close()) })
	c.control, err = c.lab.AddExternal("control")
	c.must(err)
	c.addNodes()
	c.plane, err = controlplane.Start(t.Context(), controlplane.Options{Bin: bin, Host: c.control, Dir: c.dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.connect()
	c.populate()
	return c
}

// must fails the test if there is an error, also while it cleans up.
func (c *cluster) must(errs ...error) {
	c.t.Helper()
	for _, err := range errs {
		if err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cluster) addNodes() {
	c.t.Helper()
	names := c.options.nodeNames
	if names == nil {
		for i := range max(c.options.nodes, 2) {
			names = append(names, fmt.Sprintf("n%d", i+1))
		}
		if c.options.nodes == 1 {
			names = names[:1]
		}
	}
	for _, name := range names {
		n, err := c.lab.AddNode(name, c.options.nodeAddrs[name]...)
		if err != nil {
			c.t.Fatal(err)
		}
		c.nodes = append(c.nodes, &node{Node: n, pods: controlplane.NodePods(len(c.nodes) + 1)})
	}
	for _, n := range c.nodes {
		c.routePods(c.control, n)
		for _, other := range c.nodes {
			if other != n {
				c.routePods(other, n)
			}
		}
	}
}

// routePods tells a machine where the node's pods are.
func (c *cluster) routePods(from interface {
	RouteVia(netip.Prefix, *lab.Node) error
}, to *node) {
	c.t.Helper()
	for _, p := range to.pods {
		c.must(from.RouteVia(p, to.Node))
	}
}

// external makes an outside host, which has routes to all pods and back.
func (c *cluster) external(name string, addrs ...netip.Addr) *lab.External {
	c.t.Helper()
	e, err := c.lab.AddExternal(name, addrs...)
	c.must(err)
	for _, n := range c.nodes {
		c.routePods(e, n)
	}
	return e
}

func (c *cluster) connect() {
	c.t.Helper()
	config := c.plane.Admin()
	client, err := kubernetes.NewForConfig(config)
	c.must(err)
	c.client = client
	c.dynamic, err = dynamic.NewForConfig(config)
	c.must(err)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
}

// populate starts what runs on the nodes.
func (c *cluster) populate() {
	c.t.Helper()
	var kubeconfig string
	if !c.options.noAgents {
		kubeconfig = c.agentAccess()
	}
	var g errgroup.Group
	for _, n := range c.nodes {
		if !c.options.noAgents {
			n.agent = c.newAgent(n, kubeconfig)
		}
		g.Go(func() error { return c.startNode(n) })
	}
	c.t.Cleanup(func() {
		for _, n := range c.nodes {
			if n.kubelet != nil {
				n.kubelet.Stop()
			}
			n.proxy.Kill()
		}
	})
	c.must(g.Wait())
	for _, n := range c.nodes {
		if n.agent != nil {
			n.agent.awaitReady()
		}
	}
}

func (c *cluster) startNode(n *node) (err error) {
	o := kubelet.Options{Client: c.client, Node: n.Node, Prefixes: n.pods, Log: slog.New(slog.DiscardHandler)}
	if c.options.waitForPolicy {
		o.StatusDir, o.StatusTimeout = n.agent.statusDir(), soon
	}
	if n.kubelet, err = kubelet.Start(c.t.Context(), o); err != nil {
		return err
	}
	if c.options.proxy != "none" {
		mode := c.options.proxy
		if mode == "" {
			mode = "iptables"
		}
		if n.proxy, err = c.plane.StartKubeProxy(n.Node, mode, c.options.podRanges...); err != nil {
			return err
		}
	}
	if n.agent != nil {
		return n.agent.launch()
	}
	return nil
}

// log is the end of what one part of the cluster printed: kube-apiserver, kube-proxy-n1, margay-n1, …
func (c *cluster) log(part string, lines int) string {
	text, err := os.ReadFile(filepath.Join(c.dir, part+".log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(len(line), 400)]
	}
	return strings.Join(all, "\n")
}
