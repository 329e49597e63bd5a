package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/test/e2e/cluster/process"
)

// agent is `margay run` on one node, as a process of its own in the node's network namespace, with the rights of its
// service account. What it pins outlives it.
type agent struct {
	c          *cluster
	node       *node
	kubeconfig string
	binary     string // default: the one in this tree
	flags      []string
	running    *process.Process // nil while none runs
}

// newAgent prepares an agent without starting it.
func (c *cluster) newAgent(n *node, kubeconfig string) *agent {
	c.t.Helper()
	a := &agent{c: c, node: n, kubeconfig: kubeconfig, binary: agentBinary(c.t)}
	c.must(os.Mkdir(a.bpffs(), 0o700))
	if err := unix.Mount("bpf", a.bpffs(), "bpf", 0, ""); err != nil { // RemoveDir unmounts it
		c.t.Fatal(fmt.Errorf("mount a BPF file system on %s: %w", a.bpffs(), err))
	}
	a.flags = append([]string{
		"run", "--pod-ips-from-annotations", "calico", "--datastore", "kubernetes", "--kubeconfig", kubeconfig, "--node", n.Name(), "--bpffs", a.bpffs(),
		"--socket", a.socket(), "--log-level", "debug",
	}, c.options.flags...)
	if c.options.waitForPolicy {
		a.flags = append(a.flags, "--endpoint-status-dir", a.statusDir())
	}
	c.t.Cleanup(func() {
		a.kill()
		if c.t.Failed() {
			c.t.Logf("agent on %s:\n%s\n%s", n.Name(), a.drops(), c.log("margay-"+n.Name(), 40))
		}
	})
	return a
}

func (a *agent) file(name string) string { return filepath.Join(a.c.dir, a.node.Name()+"-"+name) }

func (a *agent) socket() string { return a.file("agent.sock") }

func (a *agent) bpffs() string { return a.file("bpf") }

func (a *agent) statusDir() string { return a.file("endpoint-status") }

// launch starts the agent and does not wait.
func (a *agent) launch() (err error) {
	cmd := exec.Command(a.binary, a.flags...)
	a.running, err = process.Start(a.node.Host, filepath.Join(a.c.dir, "margay-"+a.node.Name()+".log"), cmd)
	return err
}

// start starts the agent and waits until it is ready.
func (a *agent) start() {
	a.c.t.Helper()
	a.c.must(a.launch())
	a.awaitReady()
}

func (a *agent) awaitReady() {
	a.c.t.Helper()
	testutil.WaitFor(a.c.t, time.Minute, "the agent on "+a.node.Name()+" to be ready", func() bool {
		select {
		case <-a.running.Done():
			a.c.t.Fatalf("the agent on %s ended: %v\n%s", a.node.Name(), a.running.Err(), a.running.Tail(20))
		default:
		}
		answer, err := a.ask("status")
		return err == nil && answer.Status != nil && answer.Status.Ready
	})
}

// kill ends the agent by SIGKILL, in the middle of whatever it does, and waits until it is gone.
func (a *agent) kill() {
	a.running.Kill()
	a.running = nil
}

// terminate ends it by SIGTERM and fails the test unless it exits well.
func (a *agent) terminate() {
	a.c.t.Helper()
	if err := a.running.Terminate(soon); err != nil {
		a.c.t.Error(err)
	}
	a.running = nil
}

// ask asks the agent's socket, as the tools do.
func (a *agent) ask(what string) (*inspect.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return inspect.Client{Socket: a.socket()}.Ask(ctx, "/v1/"+what, nil)
}

// drops are the packets that the node has dropped so far, by endpoint and reason. They are read from what is pinned, so no agent is needed.
func (a *agent) drops() string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own context may have ended
	defer cancel()
	out, err := a.node.Run(ctx, "", a.binary, "show", "drops", "--bpffs", a.bpffs(), "--socket", a.socket())
	if err != nil {
		return err.Error()
	}
	return out
}

// row is what the agent says of a pod of its node, "namespace/name"; nil if it does not know it.
func (a *agent) row(pod string) *inspect.EndpointRow {
	answer, err := a.ask("endpoints")
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(answer.Endpoints, func(e inspect.EndpointRow) bool { return e.Namespace+"/"+e.Name == pod })
	if i < 0 {
		return nil
	}
	return &answer.Endpoints[i]
}

// agentOf is the agent on the pod's node.
func (c *cluster) agentOf(p *lab.Pod) *agent {
	for _, n := range c.nodes {
		if n.Node == p.Node() {
			return n.agent
		}
	}
	return nil
}

// awaitEnforced waits until the pod's agent enforces it on its present interface, with its present addresses: the agent
// may know an earlier pod of the name.
func (c *cluster) awaitEnforced(p *lab.Pod) {
	c.t.Helper()
	a := c.agentOf(p)
	testutil.WaitFor(c.t, soon, "the agent to enforce "+p.Name(), func() bool {
		e := a.row(p.Name())
		return e != nil && int(e.Ifindex) == p.IfIndex() && e.Error == "" && len(e.Attached) > 0 && slices.Equal(e.Addrs, p.Addrs())
	})
}

// awaitPolicies waits until as many policies as given apply to the pod.
func (c *cluster) awaitPolicies(p *lab.Pod, ingress, egress int) {
	c.t.Helper()
	a := c.agentOf(p)
	what := fmt.Sprintf("%s to have %d ingress and %d egress policies", p.Name(), ingress, egress)
	testutil.WaitFor(c.t, soon, what, func() bool {
		e := a.row(p.Name())
		return e != nil && e.Error == "" && len(e.Ingress.Policies) == ingress && len(e.Egress.Policies) == egress
	})
}
