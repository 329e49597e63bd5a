package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// lifeStage is where a pod is in its life, as its object says.
type lifeStage struct {
	metadata string // further fields, in flow style, each with a comma before it
	phase    string
}

var (
	running     = lifeStage{"", "Running"}
	terminating = lifeStage{", deletionTimestamp: 2026-01-02T03:04:05Z, deletionGracePeriodSeconds: 30", "Running"}
	// released is what Calico's CNI plugin makes of a terminating pod once it has taken the address back.
	released  = lifeStage{terminating.metadata + `, annotations: {cni.projectcalico.org/podIP: ""}`, "Running"}
	succeeded = lifeStage{"", "Succeeded"}
	failed    = lifeStage{"", "Failed"}
)

// declareAt is declare for a pod at a stage of its life.
func (c *cluster) declareAt(p *lab.Pod, s lifeStage, labels ...string) {
	c.T.Helper()
	name := strings.TrimPrefix(p.Name(), "shop/")
	if len(labels) == 0 {
		labels = []string{"app: " + name}
	}
	var ips []string
	for _, a := range p.Addrs() {
		ips = append(ips, fmt.Sprintf("{ip: %q}", a))
	}
	c.Write("pod-"+name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {%s}%s}
spec: {nodeName: %s, containers: [{name: main}]}
status: {phase: %s, podIP: %q, podIPs: [%s]}
`, name, strings.Join(labels, ", "), s.metadata, p.Node().Name(), s.phase, p.Addrs()[0], strings.Join(ips, ", ")))
}

// awaitGone waits until the agent does not know the pod any more.
func (c *cluster) awaitGone(p *lab.Pod) {
	c.T.Helper()
	testutil.WaitFor(c.T, soon, "the agent to forget "+p.Name(), func() bool {
		a, err := c.Agents[p.Node()].Ask("status")
		return err == nil && a.Status.Ready && c.Row(p) == nil
	})
}

// untilCut is how long answers take until a connection of which packets are dropped without a reset counts as cut.
const untilCut = 3 * time.Second

// awaitCut waits until nothing of the live traffic gets through any more. Call it after the policy that cuts the traffic is in force.
func (l live) awaitCut(what string) {
	l.t.Helper()
	l.stream.Within(untilCut) // counted from now: a late answer before the cut must not end the stream
	testutil.WaitFor(l.t, soon, "the connection "+what+" to end", func() bool { return l.stream.Result().Errors > 0 })
	testutil.WaitFor(l.t, soon, "the UDP flow "+what+" to end", func() bool { return l.flow.Result().LongestGap > aGap })
	if r := l.flow.StopCut(); r.LongestGap != r.Lost {
		l.t.Errorf("%s: datagrams got through after all: %+v", what, r)
	}
	if r := l.stream.Stop(); r.Connects != 1 {
		l.t.Errorf("%s: connected again: %+v", what, r)
	}
}

const onlyAPI = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {role: api}}}]}]}`

// A pod that has ended has no address any more, although its object has: what it had open is cut, and neither it nor who
// gets the address next is let in for what it was.
func TestFinishedPodLosesItsAddress(t *testing.T) {
	for name, end := range map[string]lifeStage{"succeeded": succeeded, "failed": failed, "released": released} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, []string{"a", "b"}, "--pod-ips-from-annotations", "calico") // which says when an address is released
			db := c.Pod(c.Node(1), "db")
			job := c.Plug(c.Node(0), "job")
			c.declareAt(job, running, "role: api")
			c.AwaitEndpoint(job)
			c.AwaitKnown(job)
			c.Policy("db", onlyAPI)
			c.AwaitPolicies(db, 1, 0)
			tcp, udp := c.Serve(db.Host, 80)
			c.Serve(job.Host, 80)
			l := startLive(t, job, tcp, udp)
			c.declareAt(job, end, "role: api")
			c.awaitGone(job)
			l.awaitCut("of the pod that has ended")
			c.Reach(job.Host, db.Host, 80, false)
			c.Reach(db.Host, job.Host, 80, false)

			heir := c.unplugged(job, "heir")
			c.declareAt(heir, running, "role: heir")
			c.AwaitEndpoint(heir)
			c.AwaitKnown(heir)
			c.Serve(heir.Host, 80)
			c.Reach(heir.Host, db.Host, 80, false)
			c.Reach(db.Host, heir.Host, 80, true)
		})
	}
}

// unplugged unplugs a pod, whose object stays, and plugs another with its addresses.
func (c *cluster) unplugged(p *lab.Pod, name string) *lab.Pod {
	c.T.Helper()
	n, addrs := p.Node(), p.Addrs()
	if err := n.DelPod(p); err != nil {
		c.T.Fatal(err)
	}
	return c.Plug(n, name, addrs...)
}

// Being deleted takes time, in which the pod has its address and serves: it is let in, and judged, as before, and by policy
// that comes meanwhile.
func TestTerminatingPodKeepsItsPolicy(t *testing.T) {
	c := newCluster(t, []string{"a", "b"})
	db, api := c.Pod(c.Node(0), "db"), c.Plug(c.Node(1), "api")
	other := c.Pod(c.Node(0), "other")
	c.declareAt(api, running, "role: api")
	c.AwaitEndpoint(api)
	c.AwaitKnown(api)
	c.Policy("db", onlyAPI)
	c.AwaitPolicies(db, 1, 0)
	tcp, udp := c.Serve(db.Host, 80)
	c.Serve(api.Host, 80)
	l := startLive(t, api, tcp, udp)
	c.declareAt(db, terminating, "app: db")
	c.declareAt(api, terminating, "role: api")
	l.awaitMore("while both are being deleted")
	c.Reach(other.Host, db.Host, 80, false)
	c.Reach(other.Host, api.Host, 80, true)
	c.Policy("api", `{podSelector: {matchLabels: {role: api}}, policyTypes: [Ingress]}`)
	c.AwaitPolicies(api, 1, 0)
	c.Reach(other.Host, api.Host, 80, false)
	l.awaitMore("after a policy that is not about it")
	l.stopUndisturbed()
}

// flow is an exchange of datagrams between fixed ports, of which the kernel and the agent's tables keep a record: the
// second time its packets are those of an established flow.
type flow struct {
	from, to         *lab.Host
	fromPort, toPort uint16
}

func (f flow) exchange(v6 bool, timeout time.Duration) echo.Attempt {
	return echo.ExchangeUDPFrom(f.from, netip.AddrPortFrom(f.from.Addr(v6), f.fromPort), netip.AddrPortFrom(f.to.Addr(v6), f.toPort),
		[]byte("hello"), timeout)
}

// want demands an outcome of the exchange over both families.
func (f flow) want(t *testing.T, what string, outcome echo.Outcome) {
	t.Helper()
	timeout := never
	if outcome == echo.Connected {
		timeout = soon
	}
	for _, v6 := range []bool{false, true} {
		if got := f.exchange(v6, timeout); got.Outcome != outcome {
			t.Errorf("%s, %s to %s, IPv6 %v: %v (%v), want %v", what, f.from.Name(), f.to.Name(), v6, got.Outcome, got.Err, outcome)
		}
	}
}

// An address that goes to another pod at once, under traffic: flows of its former owner open nothing for the new one, in
// either direction; what the new one's policy allows it may do on the same ports.
func TestAddressReusedUnderTraffic(t *testing.T) {
	for name, order := range map[string]func(c *cluster, old *lab.Pod) (heir *lab.Pod){
		"deleted, then plugged": func(c *cluster, old *lab.Pod) *lab.Pod {
			c.Remove("pod-old")
			heir := c.unplugged(old, "heir")
			c.Declare(heir)
			return heir
		},
		"plugged before anybody is told": func(c *cluster, old *lab.Pod) *lab.Pod {
			heir := c.unplugged(old, "heir")
			c.Remove("pod-old")
			c.Declare(heir)
			return heir
		},
		"declared before the former owner's object goes": func(c *cluster, old *lab.Pod) *lab.Pod {
			heir := c.unplugged(old, "heir")
			c.Declare(heir)
			c.AwaitEndpoint(heir)
			c.Remove("pod-old")
			return heir
		},
	} {
		t.Run(name, func(t *testing.T) {
			forModes(t, func(t *testing.T, flags ...string) { testAddressReused(t, order, flags...) })
		})
	}
}

func testAddressReused(t *testing.T, order func(c *cluster, old *lab.Pod) *lab.Pod, flags ...string) {
	c := newCluster(t, []string{"a", "b"}, flags...)
	old := c.Plug(c.Node(0), "old")
	c.Declare(old, "role: api")
	c.AwaitEndpoint(old)
	db, near, far := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "near"), c.Pod(c.Node(1), "far")
	// The former owner is open, and let in by db. The new one admits only port 81, and db does not admit it.
	c.Policy("db", onlyAPI)
	c.Policy("heir", `{podSelector: {matchLabels: {app: heir}}, ingress: [{ports: [{port: 81, protocol: UDP}]}]}`)
	c.AwaitPolicies(db, 1, 0)
	c.Serve(db.Host, 80)
	tcp, udp := c.Serve(old.Host, 80)
	c.Serve(old.Host, 81)
	streams := []live{startLive(t, near, tcp, udp), startLive(t, far, tcp, udp)}
	flows := func(owner *lab.Pod) (denied, allowed []flow) {
		return []flow{{near.Host, owner.Host, 5000, 80}, {far.Host, owner.Host, 5000, 80}, {owner.Host, db.Host, 5001, 80}},
			[]flow{{near.Host, owner.Host, 5002, 81}, {far.Host, owner.Host, 5002, 81}}
	}
	denied, allowed := flows(old)
	for _, f := range append(denied, allowed...) {
		f.want(t, "the former owner", echo.Connected)
	}

	heir := order(c, old)
	nothing, datagrams := c.Serve(heir.Host, 80)
	c.Serve(heir.Host, 81)
	c.AwaitEndpoint(heir)
	c.AwaitPolicies(heir, 1, 0)
	c.awaitGone(old)
	for _, l := range streams {
		l.awaitCut("to the address of the former owner")
	}
	denied, allowed = flows(heir)
	for _, f := range denied {
		f.want(t, "in a flow of the former owner", echo.Timeout)
	}
	for _, f := range allowed {
		f.want(t, "as the new owner may", echo.Connected)
	}
	if n, m := nothing.Accepted(), datagrams.Received(); n != 0 || m != 0 {
		t.Errorf("the new owner got %d connections and %d datagrams that its policy denies", n, m)
	}
}

// A pod of a StatefulSet comes again under its name, with another address and another interface, whether its deletion was
// seen or not. What it was told to do it may do from the new address only.
func TestPodRecreatedUnderItsName(t *testing.T) {
	for name, deleted := range map[string]bool{"deletion seen": true, "replaced at once": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, []string{"a", "b"})
			db, near := c.Pod(c.Node(1), "db"), c.Pod(c.Node(0), "near")
			c.Policy("db", onlyAPI)
			c.Policy("api", `{podSelector: {matchLabels: {role: api}}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
			c.AwaitPolicies(db, 1, 0)
			tcp, udp := c.Serve(db.Host, 80)
			before := c.Plug(c.Node(0), "api-0")
			c.Declare(before, "role: api")
			c.AwaitEndpoint(before)
			c.AwaitKnown(before)
			for i := range 3 {
				l := startLive(t, before, tcp, udp)
				addrs := before.Addrs()
				if deleted {
					c.Remove("pod-api-0")
				}
				if err := c.Node(0).DelPod(before); err != nil {
					t.Fatal(err)
				}
				l.flow.Close()
				l.stream.Close()
				again := c.Plug(c.Node(0), "api-0", netip.MustParseAddr(fmt.Sprintf("10.65.1.%d", 100+i)), netip.MustParseAddr(fmt.Sprintf("fd65:0:0:1::%d", 100+i)))
				c.Declare(again, "role: api")
				c.AwaitEndpoint(again)
				c.Serve(again.Host, 80)
				c.Serve(again.Host, 81)
				c.AwaitKnown(again) // at the node of db, and of both IP versions, which are written one after the other
				c.Reach(again.Host, db.Host, 80, true)
				c.Reach(near.Host, again.Host, 80, true)
				c.Reach(near.Host, again.Host, 81, false)

				heir := c.Plug(c.Node(0), "heir", addrs...)
				c.Declare(heir)
				c.AwaitEndpoint(heir)
				c.Serve(heir.Host, 81)
				c.Reach(heir.Host, db.Host, 80, false)
				c.Reach(near.Host, heir.Host, 81, true)
				if err := c.Node(0).DelPod(heir); err != nil {
					t.Fatal(err)
				}
				c.Remove("pod-heir")
				before = again
				if t.Failed() {
					t.Fatalf("in round %d", i)
				}
			}
		})
	}
}

// Where live flows keep their permission, those of an address's former owner are not the new one's: neither its own policy
// nor that of the pod at the other end has allowed it anything.
func TestKeptFlowsAreNotInheritedWithAnAddress(t *testing.T) {
	testAddressReused(t, func(c *cluster, old *lab.Pod) *lab.Pod {
		c.Remove("pod-old")
		heir := c.unplugged(old, "heir")
		c.Declare(heir)
		return heir
	}, "--existing-connections", "keep")
}

// The same if the address got another owner while no agent ran.
func TestKeptFlowsAreNotInheritedWhileNoAgentRuns(t *testing.T) {
	testAddressReused(t, func(c *cluster, old *lab.Pod) *lab.Pod {
		c.Agent(0).Kill()
		c.Remove("pod-old")
		heir := c.unplugged(old, "heir")
		c.Declare(heir)
		c.Agent(0).Start()
		return heir
	}, "--existing-connections", "keep")
}

// The same, and the next agent enforces in the other mode.
func TestKeptFlowsAreNotInheritedInASwitch(t *testing.T) {
	for i, first := range modes[:2] {
		t.Run(first[1], func(t *testing.T) {
			testAddressReused(t, func(c *cluster, old *lab.Pod) *lab.Pod {
				a := c.Agent(0)
				a.Kill()
				c.Remove("pod-old")
				heir := c.unplugged(old, "heir")
				c.Declare(heir)
				a.Flags = slices.Concat(a.Flags, modes[1-i])
				a.Start()
				return heir
			}, slices.Concat([]string{"--existing-connections", "keep"}, first)...)
		})
	}
}

// A pod that is being deleted keeps its object for a while after its address went to another pod. Until it is gone, too,
// the address is the other's alone: nothing that admits the former owner admits it, near or far.
func TestAddressIsNotSharedWithATerminatingPod(t *testing.T) {
	c := newCluster(t, []string{"a", "b"})
	old := c.Plug(c.Node(0), "old")
	c.Declare(old, "role: api")
	c.AwaitEndpoint(old)
	c.AwaitKnown(old)
	db := map[string]*lab.Pod{"near": c.Pod(c.Node(0), "near", "app: db"), "far": c.Pod(c.Node(1), "far", "app: db")}
	c.Policy("db", onlyAPI)
	for _, p := range db {
		c.AwaitPolicies(p, 1, 0)
		c.Serve(p.Host, 80)
		c.Reach(old.Host, p.Host, 80, true)
	}
	c.declareAt(old, terminating, "role: api")
	heir := c.unplugged(old, "heir")
	c.Declare(heir)
	c.AwaitEndpoint(heir)
	c.Policy("told", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}`)
	for name, p := range db {
		c.AwaitPolicies(p, 2, 0)
		c.Reach(heir.Host, p.Host, 80, false)
		if t.Failed() {
			t.Errorf("to the %s pod", name)
		}
	}
	c.Remove("pod-old")
	c.awaitGone(old)
	for _, p := range db {
		c.Reach(heir.Host, p.Host, 80, false)
	}
}
