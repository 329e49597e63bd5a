package cluster

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
)

// longEnv makes the API server stay away for two minutes, and repeats more often what is measured.
const longEnv = "MARGAY_E2E_LONG"

func long() bool { return testutil.Getenv(longEnv) == "1" }

// wait lets time pass that is part of what is tested.
func wait(d time.Duration) {
	passed := time.NewTimer(d)
	<-passed.C
}

// outage is one that the nodes have while the test's own clients, the kubelets and the controllers do not.
type outage struct {
	c    *cluster
	name string
	// refuse: connections are reset and refused, as when nothing listens. Otherwise packets vanish.
	refuse bool
}

// begin cuts the nodes off in both directions.
func (o outage) begin() {
	o.c.t.Helper()
	verdict := "drop"
	if o.refuse {
		verdict = "reject with tcp reset"
	}
	var nodes []string
	for _, n := range o.c.nodes {
		nodes = append(nodes, n.Addr4().String())
	}
	o.nft(fmt.Sprintf(`table ip outage {
	set nodes { type ipv4_addr; elements = { %s } }
	chain in { type filter hook input priority 0; ip saddr @nodes tcp dport 6443 %s; }
	chain out { type filter hook output priority 0; ip daddr @nodes tcp sport 6443 tcp flags & rst == 0 drop; }
}`, strings.Join(nodes, ", "), verdict))
}

// end lets them in again and returns when that was.
func (o outage) end() time.Time {
	o.c.t.Helper()
	now := time.Now() // not later than it is
	o.nft("delete table ip outage")
	return now
}

func (o outage) nft(rules string) {
	o.c.t.Helper()
	_, err := o.c.control.Run(o.c.t.Context(), rules, "nft", "-f", "-")
	o.c.must(err)
}

// cut ends the nodes' connections to the API server, at their ends only.
func (o outage) cut() {
	o.c.t.Helper()
	for _, n := range o.c.nodes {
		_, err := n.Run(o.c.t.Context(), "", "ss", "-K", "-H", "-t", "dst", o.c.control.Addr4().String()+":6443")
		o.c.must(err)
	}
}

// The API server is away, seen as one that is stopped and as one that packets do not reach, while pods talk; what it
// holds changes unseen, and its history is compacted.
func TestAPIServerAway(t *testing.T) {
	for _, how := range []outage{{name: "refused", refuse: true}, {name: "black hole"}} {
		t.Run(how.name, func(t *testing.T) {
			c := newCluster(t, options{})
			how.c = c
			s := c.newScene()
			c.longOutage(how, s)
			c.shortOutages(how, s)
			s.traffic.stop()
			for _, n := range c.nodes {
				n.agent.quiet()
			}
		})
	}
}

// longOutage is one of two minutes, or, unless that is asked for, just long enough for connections to be found dead.
func (c *cluster) longOutage(o outage, s *scene) {
	c.t.Helper()
	length := 20 * time.Second
	switch {
	case long():
		length = 2 * time.Minute
	case !o.refuse: // nobody tells the agents: their own probes do, within 32 s
		length = 40 * time.Second
	}
	said, lists, turns := c.said(), c.lists(), s.turns()
	began := time.Now()
	if o.refuse {
		c.plane.StopAPIServer()
	} else {
		o.begin()
	}
	s.traffic.some("right after the API server has gone")
	c.awaitSaid(length, said, 1, 0)
	c.t.Logf("the agents noticed within %v", time.Since(began).Round(time.Millisecond))
	c.awaitDegraded()
	s.traffic.some("without an API server")
	if o.refuse {
		wait(time.Until(began.Add(length)))
		o.begin() // as before, for the nodes
	} else {
		c.plane.StopAPIServer() // what it has in memory of its history, it loses
	}
	c.must(c.plane.StartAPIServer(c.t.Context()))
	c.plane.StopControllerManager() // it would take its time to come back
	c.must(c.plane.StartControllerManager(c.t.Context()))
	opens, never := s.change()
	turns = append(turns, opens)
	c.must(c.plane.Compact(c.t.Context()))
	if !o.refuse {
		wait(time.Until(began.Add(length)))
	}
	s.traffic.some("before the API server is back")
	for _, u := range turns {
		u.unturned(c.t)
	}
	gone := time.Since(began)
	took := awaitTurns(c.t, o.end(), turns...)
	for i, u := range turns {
		u.stop(c.t)
		c.t.Logf("%s: %v after the return", u.what, took[i].Round(time.Millisecond))
	}
	c.t.Logf("away for %v; caught up %s", gone.Round(time.Second), figures(took))
	c.judgeTime(took)
	c.awaitSaid(soon, said, 1, 1)
	c.awaitHealthy()
	c.sameAsServer()
	for i, now := range c.lists() {
		if now <= lists[i] {
			c.t.Errorf("%s has not listed again (%v lists): the version it was at should be gone", c.nodes[i].Name(), now)
		}
	}
	s.settled()
	if r := never.StopCut(); r.Received != 0 {
		c.t.Errorf("a pod has inherited more than the address of a deleted one: %+v", r)
	}
	s.traffic.some("after the API server has come back")
}

// shortOutages are for the time that it takes to catch up. The server's history reaches back to their beginnings.
func (c *cluster) shortOutages(o outage, s *scene) {
	c.t.Helper()
	rounds := 4
	if long() {
		rounds = 20
	}
	var took []time.Duration
	said, lists := c.said(), c.lists()
	for i := range rounds {
		opens := i%2 == 0
		turns := []*turn{
			c.startTurn("policy toggled, same node", opens, s.probe, s.toggled[0], i%4 < 2),
			c.startTurn("policy toggled, other node", opens, s.probe, s.toggled[1], i%4 > 1),
		}
		o.begin()
		o.cut()
		c.awaitSaid(soon, said, i+1, i)
		s.toggle(opens)
		wait(time.Duration(i) * 3 * time.Second / time.Duration(rounds)) // anywhere between two of the agents' questions
		for _, u := range turns {
			u.unturned(c.t)
		}
		took = append(took, awaitTurns(c.t, o.end(), turns...)...)
		for _, u := range turns {
			u.stop(c.t)
		}
		c.awaitSaid(soon, said, i+1, i+1)
	}
	c.t.Logf("%d short outages: caught up %s", rounds, figures(took))
	c.judgeTime(took)
	if now := c.lists(); !slices.Equal(now, lists) {
		c.t.Errorf("lists of NetworkPolicies: %v before, %v after: watches were to be resumed", lists, now)
	}
}

// judgeTime demands that it usually takes no more than a second to catch up. A change that comes later may have met a
// machine that does other work, up to a point.
func (c *cluster) judgeTime(took []time.Duration) {
	c.t.Helper()
	took = slices.Sorted(slices.Values(took))
	if p50 := took[len(took)/2]; p50 > time.Second {
		c.t.Errorf("half of the changes took longer than %v after the return", p50)
	}
	if most := took[len(took)-1]; most > 3*time.Second {
		c.t.Errorf("a change took %v after the return", most)
	}
}

func figures(took []time.Duration) string {
	took = slices.Sorted(slices.Values(took))
	return fmt.Sprintf("p50 %v, max %v of %d changes", took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took))
}

// etcd is away while the API server is there: it cannot answer, or only with errors. An agent started meanwhile waits,
// and what was enforced stays.
func TestEtcdAway(t *testing.T) {
	c := newCluster(t, options{})
	s := c.newScene()
	turns := []*turn{
		c.startTurn("policy toggled, same node", true, s.probe, s.toggled[0], false),
		c.startTurn("policy toggled, other node", true, s.probe, s.toggled[1], true),
	}
	c.plane.StopEtcd()
	s.traffic.some("right after etcd has gone")
	restarted, other := c.nodes[0].agent, c.nodes[1].agent
	restarted.kill()
	s.traffic.some("without an agent")
	c.must(restarted.launch())
	length := 10 * time.Second
	if long() {
		length = time.Minute
	}
	wait(length)
	for _, a := range []*agent{restarted, other} {
		if code, body := a.get(healthPort, "/livez"); code != http.StatusOK {
			t.Errorf("the agent on %s is not live: %d\n%s", a.node.Name(), code, body)
		}
	}
	if code, body := restarted.get(healthPort, "/readyz"); code != http.StatusServiceUnavailable {
		t.Errorf("the agent that was started without etcd is ready: %d\n%s", code, body)
	}
	if code, body := other.get(healthPort, "/readyz"); code != http.StatusOK {
		t.Errorf("the agent that was there before is not ready: %d\n%s", code, body)
	}
	s.traffic.some("without etcd")
	for _, u := range turns {
		u.unturned(t)
	}
	c.must(c.plane.StartEtcd(t.Context()))
	started := time.Now()
	c.awaitToggled()
	changed := time.Now()
	took := awaitTurns(t, changed, turns...)
	t.Logf("the API server took a change %v after etcd's return; it was enforced %v and, by the agent started meanwhile, %v later",
		changed.Sub(started).Round(time.Millisecond), took[1].Round(time.Millisecond), took[0].Round(time.Millisecond))
	for _, u := range turns {
		u.stop(t)
	}
	restarted.awaitReady()
	testutil.WaitFor(t, soon, "the agent that was restarted to tell its probe that it is ready", func() bool {
		code, _ := restarted.get(healthPort, "/readyz")
		return code == http.StatusOK
	})
	c.awaitHealthy()
	c.sameAsServer()
	s.traffic.some("after etcd has come back")
	s.traffic.stop()
}

// awaitToggled opens the toggled pods, as soon as the API server can.
func (c *cluster) awaitToggled() {
	c.t.Helper()
	policies := c.client.NetworkingV1().NetworkPolicies("shop")
	testutil.WaitFor(c.t, 3*soon, "the API server to take a change", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		toggle, err := policies.Get(ctx, "toggle", metav1.GetOptions{})
		if err != nil {
			return false
		}
		toggle.Spec.Ingress[0].From[0].PodSelector.MatchLabels["app"] = "probe"
		_, err = policies.Update(ctx, toggle, metav1.UpdateOptions{})
		return err == nil
	})
}
