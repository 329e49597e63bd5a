// Package e2e proves the whole agent: `margay run` as a process on the nodes of a lab, manifests in a directory, real
// pods, real traffic.
package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/agent/wire"
)

const (
	soon  = 5 * time.Second        // for what must come
	never = 200 * time.Millisecond // for what must not
)

// cluster is a lab whose nodes run agents that read one directory of manifests.
type cluster struct {
	t      *testing.T
	lab    *lab.Lab
	dir    string
	agents map[*lab.Node]*process
}

// newCluster makes nodes with an agent each, ready, and the namespace shop.
func newCluster(t *testing.T, nodes []string, flags ...string) *cluster {
	t.Helper()
	testutil.Privileged(t)
	build(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, lab: l, dir: t.TempDir(), agents: map[*lab.Node]*process{}}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	c.namespace("shop")
	for _, name := range nodes {
		n, err := l.AddNode(name)
		if err != nil {
			t.Fatal(err)
		}
		c.write("node-"+name, fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s}
status: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}
`, name, n.Addr4(), n.Addr6()))
		c.agents[n] = newProcess(t, n, c.dir, flags...)
	}
	for _, a := range c.agents {
		a.start()
	}
	return c
}

func (c *cluster) node(i int) *lab.Node { return c.lab.Nodes()[i] }

func (c *cluster) agent(i int) *process { return c.agents[c.node(i)] }

// write puts a manifest in place at once.
func (c *cluster) write(name, text string) {
	c.t.Helper()
	temporary := filepath.Join(c.dir, name+".tmp")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(c.dir, name+".yaml")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) remove(name string) {
	c.t.Helper()
	if err := os.Remove(filepath.Join(c.dir, name+".yaml")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) namespace(name string) {
	c.t.Helper()
	c.write("namespace-"+name, fmt.Sprintf(`apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {team: %[1]s}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: %[1]s}
`, name))
}

// plug makes a pod in the lab, which the datastore does not know yet.
func (c *cluster) plug(n *lab.Node, name string, addrs ...netip.Addr) *lab.Pod {
	c.t.Helper()
	p, err := n.AddPod("shop", name, addrs...)
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

// declare tells the datastore of a pod of the lab. Its label app is its name unless labels say otherwise.
func (c *cluster) declare(p *lab.Pod, labels ...string) {
	c.t.Helper()
	name := strings.TrimPrefix(p.Name(), "shop/")
	if len(labels) == 0 {
		labels = []string{"app: " + name}
	}
	var ips []string
	for _, a := range p.Addrs() {
		ips = append(ips, fmt.Sprintf("{ip: %q}", a))
	}
	c.write("pod-"+name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {%s}}
spec:
  nodeName: %s
  containers: [{name: main, ports: [{name: http, containerPort: 80}]}]
status: {phase: Running, podIP: %q, podIPs: [%s]}
`, name, strings.Join(labels, ", "), p.Node().Name(), p.Addrs()[0], strings.Join(ips, ", ")))
}

// pod makes a pod, declares it and waits until its node's agent has it.
func (c *cluster) pod(n *lab.Node, name string, labels ...string) *lab.Pod {
	c.t.Helper()
	p := c.plug(n, name)
	c.declare(p, labels...)
	c.awaitEndpoint(p)
	return p
}

// row is what the agent says of the pod; nil if it does not know it.
func (c *cluster) row(p *lab.Pod) *wire.EndpointRow {
	a, err := c.agents[p.Node()].ask("endpoints")
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

// awaitEndpoint waits until the pod is enforced on its present interface, with its present addresses: the agent may know
// an earlier pod of the name.
func (c *cluster) awaitEndpoint(p *lab.Pod) {
	c.t.Helper()
	testutil.WaitFor(c.t, soon, "the agent to enforce "+p.Name(), func() bool {
		e := c.row(p)
		return e != nil && int(e.Ifindex) == p.IfIndex() && e.Error == "" && len(e.Attached) > 0 &&
			slices.Equal(e.Addrs, p.Addrs())
	})
}

// awaitPolicies waits until as many policies as given apply to the pod.
func (c *cluster) awaitPolicies(p *lab.Pod, ingress, egress int) {
	c.t.Helper()
	what := fmt.Sprintf("%s to have %d ingress and %d egress policies", p.Name(), ingress, egress)
	testutil.WaitFor(c.t, soon, what, func() bool {
		e := c.row(p)
		return e != nil && e.Error == "" && len(e.Ingress.Policies) == ingress && len(e.Egress.Policies) == egress
	})
}

// external makes an outside host.
func (c *cluster) external(name string) *lab.External {
	c.t.Helper()
	e, err := c.lab.AddExternal(name)
	if err != nil {
		c.t.Fatal(err)
	}
	return e
}

// policy writes a NetworkPolicy of the namespace shop; spec is in YAML's flow style.
func (c *cluster) policy(name, spec string) {
	c.t.Helper()
	c.write("policy-"+name, fmt.Sprintf(`apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s, namespace: shop}
spec: %s
`, name, spec))
}

func (c *cluster) serve(h *lab.Host, port uint16) (tcp, udp *lab.Server) {
	c.t.Helper()
	tcp, err := h.ListenTCP(port)
	if err != nil {
		c.t.Fatal(err)
	}
	if udp, err = h.ListenUDP(port); err != nil {
		c.t.Fatal(err)
	}
	return tcp, udp
}

// reach demands that TCP and UDP to the port, or echo requests if it is 0, get through over both families, or that none
// of them does. All are tried at the same time.
func (c *cluster) reach(from, to *lab.Host, port uint16, want bool) {
	c.t.Helper()
	timeout, outcome := never, lab.Timeout
	if want {
		timeout, outcome = soon, lab.Connected
	}
	type attempt struct {
		what string
		got  lab.Attempt
	}
	done := make(chan attempt)
	tries := 0
	try := func(what string, do func() lab.Attempt) {
		tries++
		go func() { done <- attempt{what, do()} }()
	}
	for _, a := range to.Addrs() {
		dst := netip.AddrPortFrom(a, port)
		if port == 0 {
			try("ping "+a.String(), func() lab.Attempt { return from.Ping(a, timeout) })
			continue
		}
		try("tcp "+dst.String(), func() lab.Attempt { return from.DialTCP(dst, timeout) })
		try("udp "+dst.String(), func() lab.Attempt { return from.ExchangeUDP(dst, []byte("hello"), timeout) })
	}
	for range tries {
		if a := <-done; a.got.Outcome != outcome || a.got.Established && !want {
			c.t.Errorf("%s to %s, %s: %v (%v), want %v", from.Name(), to.Name(), a.what, a.got.Outcome, a.got.Err, outcome)
		}
	}
}
