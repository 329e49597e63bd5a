package kubelet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

const policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 8080}]}]
`

// TestTheDaemonSetOnARealNode follows docs/installation.md on a node of real parts: install, enforce, ask, restart, kill and uninstall.
func TestTheDaemonSetOnARealNode(t *testing.T) {
	for name, w := range map[string]way{"bpf": kustomizedBPF, "iptables": kustomizedIPTables, "helm": charted} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.write("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
			w.install(c)
			c.rolledOut("margay")
			for _, name := range []string{"web", "db", "other"} {
				c.pod(name)
			}
			c.kubectl("-n", "shop", "wait", "--for=condition=Ready", "pod", "--all", "--timeout=120s")
			c.reach("other", "db", 8080, true)
			c.write(policy)
			c.enforced()
			c.answers(w.dataplane)
			c.underTraffic(func() {
				w.restart(c)
				c.rolledOut("margay")
			})
			c.killed()
			c.withoutAgent()
			w.uninstall(c)
			c.clean()
		})
	}
}

// rolledOut waits until the pods of a DaemonSet are new, and ready.
func (c *cluster) rolledOut(name string) {
	c.t.Helper()
	c.kubectl("-n", "kube-system", "rollout", "status", "ds/"+name)
}

// enforced demands what the policy says. The kubelet's probe of db comes from the node, to a port that no pod may use.
func (c *cluster) enforced() {
	c.t.Helper()
	c.reach("other", "db", 8080, false)
	c.reach("web", "db", 8080, true)
	c.reach("web", "db", 80, false)
	c.reach("db", "other", 80, true)
}

// answers asks the agent in its container, as docs/operations.md does.
func (c *cluster) answers(dataplane string) {
	c.t.Helper()
	for command, want := range map[string]string{
		"show status":                   "policy of 3 endpoints is enforced",
		"show status -o json":           `"dataplane": "` + dataplane,
		"show endpoints":                "shop/db",
		"explain shop/web shop/db:8080": "NetworkPolicy shop/db",
		"config":                        "MARGAY_INTERFACE_PREFIX",
		"verify":                        "proven: 3 endpoints",
	} {
		if got := c.agent(strings.Fields(command)...); !strings.Contains(got, want) {
			c.t.Errorf("margay %s has no %q:\n%s", command, want, got)
		}
	}
}

// underTraffic demands that no connection is judged wrong while something is done.
func (c *cluster) underTraffic(do func()) {
	c.t.Helper()
	web, other, db := c.address("web"), c.address("other"), c.address("db")
	end, counts := make(chan struct{}), make(chan int)
	for from, want := range map[netip.Addr]bool{web: true, other: false} {
		go func() {
			n := 0
			for {
				select {
				case <-end:
					counts <- n
					return
				default:
				}
				got, err := c.dial(from, db, 8080)
				if err != nil || (got == "connected") != want {
					c.t.Errorf("after %d connections from %s: %q (%v), want connected: %t", n, from, got, err, want)
				}
				n++
			}
		}()
	}
	do()
	close(end)
	a, b := <-counts, <-counts
	c.t.Logf("%d and %d connections meanwhile", a, b)
	if min(a, b) == 0 {
		c.t.Error("there was no traffic")
	}
}

// killed ends the agent by SIGKILL: the kubelet starts it again.
func (c *cluster) killed() {
	c.t.Helper()
	restarts := func() string {
		return c.kubectl("-n", "kube-system", "get", "pods", "-l", "app.kubernetes.io/name=margay", "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}")
	}
	before := restarts()
	c.must(c.node.nsenter("pkill", "-KILL", "-x", "margay").Run())
	c.enforced()
	testutil.WaitFor(c.t, soon, "the kubelet to start the agent again", func() bool { return restarts() != before })
	c.rolledOut("margay")
	c.enforced()
}

// withoutAgent stops the agent of the node. A pod that starts meanwhile gets no network until there is an agent again.
func (c *cluster) withoutAgent() {
	c.t.Helper()
	c.kubectl("label", "node", "n1", "margay/off=true")
	c.gone()
	c.enforced()
	c.pod("late")
	testutil.WaitFor(c.t, soon, "the new pod to run", func() bool {
		return c.kubectl("-n", "shop", "get", "pod", "late", "-o", "jsonpath={.status.containerStatuses[0].state.running.startedAt}") != ""
	})
	if got, err := c.dial(c.address("late"), c.address("db"), 80); err == nil {
		c.t.Errorf("the node reaches a pod that no agent knows, which says %q", got)
	}
	c.kubectl("label", "node", "n1", "margay/off-")
	c.kubectl("-n", "shop", "wait", "--for=condition=Ready", "pod", "late", "--timeout=120s")
	c.reach("late", "db", 8080, false)
	c.enforced()
}

// gone waits until the agent has ended.
func (c *cluster) gone() {
	c.t.Helper()
	c.kubectl("-n", "kube-system", "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=margay", "--timeout=60s")
}

// clean demands that nothing is left on the node and nothing enforced.
func (c *cluster) clean() {
	c.t.Helper()
	c.reach("other", "db", 8080, true)
	c.reach("web", "db", 80, true)
	for _, command := range [][]string{
		{"find", "/sys/fs/bpf", "/run/margay", "-mindepth", "1"}, {"sh", "-c", "iptables-save; ip6tables-save; ipset list -n"},
	} {
		left, err := c.node.nsenter(command[0], command[1:]...).CombinedOutput()
		if err != nil || strings.Contains(string(left), "margay") || strings.Contains(string(left), "mgy") {
			c.t.Errorf("left behind (%v):\n%s", err, left)
		}
	}
}
