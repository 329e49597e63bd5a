// Package testcluster is what tests of whole agents share: `margay run` as processes on the nodes of a lab, manifests in a
// directory, real pods, real traffic. All of it fails the test that it was made for, and ends with it.
package testcluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	Soon  = time.Minute            // for what must come
	Never = 200 * time.Millisecond // for what must not
)

// Cluster is a lab whose nodes run agents that read one directory of manifests.
type Cluster struct {
	T      *testing.T
	Lab    *lab.Lab
	Dir    string // of the manifests
	Agents map[*lab.Node]*Process
}

// New makes nodes with an agent each, ready, and the namespace shop. The flags are those of every agent.
func New(t *testing.T, nodes []string, flags ...string) *Cluster {
	t.Helper()
	testutil.Privileged(t)
	Build(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{T: t, Lab: l, Dir: t.TempDir(), Agents: map[*lab.Node]*Process{}}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	c.Namespace("shop")
	for _, name := range nodes {
		n, err := l.AddNode(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Write("node-"+name, fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s}
status: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}
`, name, n.Addr4(), n.Addr6()))
		c.Agents[n] = NewProcess(t, n, c.Dir, flags...)
	}
	for _, a := range c.Agents {
		a.Start()
	}
	return c
}

// Node is the i-th node, in the order of New.
func (c *Cluster) Node(i int) *lab.Node { return c.Lab.Nodes()[i] }

// Agent is the agent of the i-th node.
func (c *Cluster) Agent(i int) *Process { return c.Agents[c.Node(i)] }

// Write puts a manifest in place at once. The name is that of its file, without ending.
func (c *Cluster) Write(name, text string) {
	c.T.Helper()
	temporary := filepath.Join(c.Dir, name+".tmp")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		c.T.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(c.Dir, name+".yaml")); err != nil {
		c.T.Fatal(err)
	}
}

// Remove removes a manifest.
func (c *Cluster) Remove(name string) {
	c.T.Helper()
	if err := os.Remove(filepath.Join(c.Dir, name+".yaml")); err != nil {
		c.T.Fatal(err)
	}
}

// Namespace makes a namespace and its service account. Its label team is its name.
func (c *Cluster) Namespace(name string) {
	c.T.Helper()
	c.Write("namespace-"+name, fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {team: %[1]s}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: %[1]s}
`, name))
}

// split is the namespace and name of "namespace/name", and of "name" in the namespace shop.
func split(name string) (namespace, short string) {
	if namespace, short, ok := strings.Cut(name, "/"); ok {
		return namespace, short
	}
	return "shop", name
}

// file is the manifest of an object: kind-name, or kind-namespace.name outside of the namespace shop.
func file(kind, name string) string {
	namespace, short := split(name)
	if namespace == "shop" {
		return kind + "-" + short
	}
	return kind + "-" + namespace + "." + short
}

// Plug makes a pod in the lab, which the datastore does not know yet. The name is that in the namespace shop, or
// namespace/name.
func (c *Cluster) Plug(n *lab.Node, name string, addrs ...netip.Addr) *lab.Pod {
	c.T.Helper()
	namespace, short := split(name)
	p, err := n.AddPod(namespace, short, addrs...)
	if err != nil {
		c.T.Fatal(err)
	}
	return p
}

// Declare writes the manifest of a pod of the lab, pod-<name> or pod-<namespace>.<name>. Its label app is its name unless
// labels say otherwise.
func (c *Cluster) Declare(p *lab.Pod, labels ...string) {
	c.T.Helper()
	namespace, name := split(p.Name())
	if len(labels) == 0 {
		labels = []string{"app: " + name}
	}
	var ips []string
	for _, a := range p.Addrs() {
		ips = append(ips, fmt.Sprintf("{ip: %q}", a))
	}
	c.Write(file("pod", p.Name()), fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {%s}}
spec:
  nodeName: %s
  containers: [{name: main, ports: [{name: http, containerPort: 80}]}]
status: {phase: Running, podIP: %q, podIPs: [%s]}
`, name, namespace, strings.Join(labels, ", "), p.Node().Name(), p.Addrs()[0], strings.Join(ips, ", ")))
}

// Pod plugs a pod, declares it and waits until its node's agent enforces it and all agents know it.
func (c *Cluster) Pod(n *lab.Node, name string, labels ...string) *lab.Pod {
	c.T.Helper()
	p := c.Plug(n, name)
	c.Declare(p, labels...)
	c.AwaitEndpoint(p)
	c.AwaitKnown(p)
	return p
}

// Row is what the agent says of the pod; nil if it does not know it.
func (c *Cluster) Row(p *lab.Pod) *inspect.EndpointRow {
	a, err := c.Agents[p.Node()].Ask("endpoints")
	if err != nil {
		return nil
	}
	for i, e := range a.Endpoints {
		if e.Namespace+"/"+e.Name == p.Name() {
			return &a.Endpoints[i]
		}
	}
	return nil
}

// AwaitEndpoint waits until the pod is enforced on its present interface, with its present addresses: the agent may know
// an earlier pod of the name.
func (c *Cluster) AwaitEndpoint(p *lab.Pod) {
	c.T.Helper()
	defer c.describeRow(p)()
	testutil.WaitFor(c.T, Soon, "the agent to enforce "+p.Name(), func() bool {
		e := c.Row(p)
		return e != nil && int(e.Ifindex) == p.IfIndex() && e.Error == "" && len(e.Attached) > 0 &&
			slices.Equal(e.Addrs, p.Addrs())
	})
}

// AwaitKnown waits until every agent that runs knows the pod as the owner of its addresses. Of an address that two pods claim,
// agents of other nodes know no owner.
func (c *Cluster) AwaitKnown(p *lab.Pod) {
	c.T.Helper()
	for _, a := range c.Agents {
		if a.Cmd != nil {
			a.awaitOwner(p)
		}
	}
}

// describeRow returns what a wait for the pod ends with: if the wait failed, it logs what the agent says of the pod, and of itself.
func (c *Cluster) describeRow(p *lab.Pod) func() {
	failed := c.T.Failed()
	return func() {
		if failed || !c.T.Failed() {
			return
		}
		for _, what := range []string{"endpoints", "status"} {
			a, err := c.Agents[p.Node()].Ask(what)
			if err != nil {
				c.T.Logf("ask the agent on %s for %s: %v", p.Node().Name(), what, err)
				c.Agents[p.Node()].Dump()
				return
			}
			text, err := json.Marshal(a)
			c.T.Logf("%s has ifindex %d and %v; the agent on %s says %s (%v)", p.Name(), p.IfIndex(), p.Addrs(), p.Node().Name(), text, err)
		}
	}
}

// AwaitPolicies waits until as many policies as given apply to the pod.
func (c *Cluster) AwaitPolicies(p *lab.Pod, ingress, egress int) {
	c.T.Helper()
	defer c.describeRow(p)()
	what := fmt.Sprintf("%s to have %d ingress and %d egress policies", p.Name(), ingress, egress)
	testutil.WaitFor(c.T, Soon, what, func() bool {
		e := c.Row(p)
		return e != nil && e.Error == "" && len(e.Ingress.Policies) == ingress && len(e.Egress.Policies) == egress
	})
}

// External makes an outside host.
func (c *Cluster) External(name string) *lab.External {
	c.T.Helper()
	e, err := c.Lab.AddExternal(name)
	if err != nil {
		c.T.Fatal(err)
	}
	return e
}

// Policy writes a NetworkPolicy of the namespace shop, or of another as namespace/name, into the manifest policy-<name> or
// policy-<namespace>.<name>; spec is in YAML's flow style.
func (c *Cluster) Policy(name, spec string) {
	c.T.Helper()
	namespace, short := split(name)
	c.Write(file("policy", name), fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s, namespace: %s}
spec: %s
`, short, namespace, spec))
}

// Serve starts echo servers of both protocols.
func (c *Cluster) Serve(h *lab.Host, port uint16) (tcp, udp *echo.Server) {
	c.T.Helper()
	tcp, err := echo.ListenTCP(h, port)
	if err != nil {
		c.T.Fatal(err)
	}
	if udp, err = echo.ListenUDP(h, port); err != nil {
		c.T.Fatal(err)
	}
	return tcp, udp
}

// Reach demands that TCP and UDP to the port, or echo requests if it is 0, get through over both families, or that none
// of them does. All are tried at the same time.
func (c *Cluster) Reach(from, to *lab.Host, port uint16, want bool) {
	c.T.Helper()
	timeout, outcome := Never, echo.Timeout
	if want {
		timeout, outcome = Soon, echo.Connected
	}
	type attempt struct {
		what string
		got  echo.Attempt
	}
	done := make(chan attempt)
	tries := 0
	try := func(what string, do func() echo.Attempt) {
		tries++
		go func() { done <- attempt{what, do()} }()
	}
	for _, a := range to.Addrs() {
		dst := netip.AddrPortFrom(a, port)
		if port == 0 {
			try("ping "+a.String(), func() echo.Attempt { return traffic.Ping(from, a, timeout) })
			continue
		}
		try("tcp "+dst.String(), func() echo.Attempt { return echo.DialTCP(from, dst, timeout) })
		try("udp "+dst.String(), func() echo.Attempt { return echo.ExchangeUDP(from, dst, []byte("hello"), timeout) })
	}
	for range tries {
		if a := <-done; a.got.Outcome != outcome || a.got.Established && !want {
			c.T.Errorf("%s to %s, %s: %v (%v), want %v", from.Name(), to.Name(), a.what, a.got.Outcome, a.got.Err, outcome)
		}
	}
}
