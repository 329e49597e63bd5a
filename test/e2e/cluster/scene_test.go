package cluster

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// scene is what talks during outages: traffic that nothing may disturb, and flows that are judged anew.
type scene struct {
	c            *cluster
	traffic      *steadyTraffic
	probe, guest *lab.Pod
	toggled      [2]*lab.Pod         // on both nodes, opened and closed by toggle
	to, from     map[string]*lab.Pod // by what changes
}

// changes are what concerns pods of namespace shop, each with a policy, or none at first, of the same name.
var changes = []struct{ name, node, from string }{
	{"created", "n1", ""},
	{"changed", "n2", `{podSelector: {matchLabels: {app: probe}}}`},
	{"deleted", "n1", `{podSelector: {matchLabels: {app: nobody}}}`},
	{"labels", "n2", `{podSelector: {matchLabels: {role: friend}}}`},
	{"namespace", "n1", `{namespaceSelector: {matchLabels: {team: other}}}`},
	{"address", "n1", `{namespaceSelector: {matchLabels: {team: gone}}}`},
}

func (c *cluster) newScene() *scene {
	c.t.Helper()
	for _, name := range []string{"shop", "other", "gone"} {
		c.namespace(name, "team: "+name)
	}
	s := &scene{c: c, to: map[string]*lab.Pod{}, from: map[string]*lab.Pod{}}
	client := c.pod("shop", "client", "n1")
	near, far := c.pod("shop", "near", "n1", "tier: base"), c.pod("shop", "far", "n2", "tier: base", "app: web")
	s.probe, s.guest = c.pod("shop", "probe", "n1"), c.pod("shop", "guest", "n1")
	s.from["namespace"], s.from["address"] = c.pod("other", "stranger", "n2"), c.pod("gone", "doomed", "n1")
	for _, g := range changes {
		s.to[g.name] = c.pod("shop", g.name, g.node)
		if g.from != "" {
			s.policyOf(g.name, g.from)
		}
	}
	s.toggled = [2]*lab.Pod{c.pod("shop", "toggle1", "n1", "toggle: it"), c.pod("shop", "toggle2", "n2", "toggle: it")}
	s.toggle(false)
	c.policy("gone", "lost", `{podSelector: {}}`)
	c.policy("shop", "open", onlyOpen)
	c.policy("shop", "base", onlyBase)
	for _, g := range changes {
		if g.from != "" {
			c.awaitPolicies(s.to[g.name], 1, 1)
		}
	}
	for _, p := range []*lab.Pod{near, far, s.from["address"]} {
		c.awaitPolicies(p, 1, 0)
	}
	for _, p := range s.toggled {
		c.awaitPolicies(p, 1, 1)
	}
	c.awaitPolicies(client, 0, 1)
	c.reach(s.from["address"].Host, s.to["address"].Host, openPort, true)
	web := c.service("shop", "web", "app: web")
	c.awaitService(client.Host, web, openPort)
	s.traffic = c.startTraffic(client, c.pod("shop", "outcast", "n1"), clusterIPs(web), near, far)
	return s
}

// policyOf has the pod of that name let only them in, and nothing out: an answer that is under way when a flow is cut
// would otherwise be a flow of the pod's own, to which what the other side sends is the answer.
func (s *scene) policyOf(name, from string) {
	s.c.t.Helper()
	s.c.policy("shop", name, onlyFrom("app: "+name, from))
}

func onlyFrom(pods, from string) string {
	return fmt.Sprintf(`{podSelector: {matchLabels: {%s}}, policyTypes: [Ingress, Egress], ingress: [{from: [%s]}]}`, pods, from)
}

// toggle opens the toggled pods to the probe, or closes them.
func (s *scene) toggle(open bool) {
	s.c.t.Helper()
	app := "nobody"
	if open {
		app = "probe"
	}
	s.c.policy("shop", "toggle", onlyFrom("toggle: it", fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}}`, app)))
}

// turns are flows as they are before change.
func (s *scene) turns() []*turn {
	s.c.t.Helper()
	return []*turn{
		s.c.startTurn("policy created", false, s.probe, s.to["created"], false),
		s.c.startTurn("policy changed, against", false, s.probe, s.to["changed"], true),
		s.c.startTurn("policy changed, for", true, s.guest, s.to["changed"], false),
		s.c.startTurn("policy deleted", true, s.probe, s.to["deleted"], true),
		s.c.startTurn("labels of a pod changed", true, s.guest, s.to["labels"], false),
		s.c.startTurn("labels of a namespace changed", false, s.from["namespace"], s.to["namespace"], true),
	}
}

// change makes all changes, and returns two flows more, of a pod that has inherited the address of a deleted one: it is
// closed until its agent knows it, and is never what the other one was.
func (s *scene) change() (opens *turn, never *traffic.UDPFlow) {
	s.c.t.Helper()
	s.policyOf("created", `{podSelector: {matchLabels: {app: nobody}}}`)
	s.policyOf("changed", `{podSelector: {matchLabels: {app: guest}}}`)
	s.c.deletePolicy("shop", "deleted")
	s.c.labelPod("shop", "guest", `{"role":"friend"}`)
	s.c.namespace("other", "team: changed")

	doomed := s.from["address"]
	s.c.must(s.c.client.CoreV1().Namespaces().Delete(s.c.t.Context(), "gone", metav1.DeleteOptions{}))
	testutil.WaitFor(s.c.t, 4*soon, "namespace gone to be gone, with all that is in it", func() bool {
		_, err := s.c.client.CoreV1().Namespaces().Get(s.c.t.Context(), "gone", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	address := fmt.Sprintf(`margay.test/addresses: "%s,%s"`, doomed.Addr4(), doomed.Addr6())
	// The scheduler may not be back yet.
	s.c.apply(podSpec{annotations: []string{address}, extra: []string{"nodeName: n1"}}.manifest("shop", "heir"))
	heir := s.c.awaitRunning("shop", "heir")
	s.from["address"] = heir
	never, err := traffic.StartUDPFlow(heir.Host, netip.AddrPortFrom(s.to["address"].Addr4(), openPort), traffic.UDPFlowOptions{})
	s.c.must(err)
	return s.c.startTurn("pod made", true, heir, s.to["deleted"], true), never
}

// settled demands that everything is judged as it should be after change.
func (s *scene) settled() {
	s.c.t.Helper()
	for _, r := range []struct {
		from    *lab.Pod
		to      string
		allowed bool
	}{
		{s.probe, "created", false}, {s.probe, "changed", false}, {s.guest, "changed", true}, {s.probe, "deleted", true},
		{s.guest, "labels", true}, {s.probe, "labels", false}, {s.from["namespace"], "namespace", false}, {s.from["address"], "address", false},
	} {
		s.c.reach(r.from.Host, s.to[r.to].Host, openPort, r.allowed)
	}
}

// turn is a UDP flow of which the judgement changes once: from allowed to denied, or the other way round.
type turn struct {
	what  string
	opens bool
	flow  *traffic.UDPFlow
	seen  uint64    // answers when it was looked at last
	sent  uint64    // datagrams sent when an answer was seen last, of a flow that closes
	at    time.Time // when an answer was seen last, of a flow that closes; the first one, of a flow that opens
}

const (
	turnInterval = 10 * time.Millisecond            // from one datagram of a turn to the next
	unanswered   = uint64(2 * never / turnInterval) // as many without an answer, one after the other, are denied
)

// startTurn starts a flow to the port 80 of the pod, with one of its addresses.
func (c *cluster) startTurn(what string, opens bool, from, to *lab.Pod, v6 bool) *turn {
	c.t.Helper()
	at := netip.AddrPortFrom(to.Addr(v6), openPort)
	f, err := traffic.StartUDPFlow(from.Host, at, traffic.UDPFlowOptions{Interval: turnInterval})
	c.must(err)
	if !opens {
		testutil.WaitFor(c.t, soon, "traffic before: "+what, func() bool { return f.Result().Received > 5 })
	}
	return &turn{what: what, opens: opens, flow: f}
}

// unturned demands that the flow is judged as at first.
func (u *turn) unturned(t testing.TB) {
	t.Helper()
	switch r := u.flow.Result(); {
	case u.opens && r.Received != 0:
		t.Errorf("%s: %d datagrams got through too early", u.what, r.Received)
	case !u.opens && r.LongestGap > 20: // they are lost, or under way for long
		testutil.WaitFor(t, soon, "an answer to what was not to be denied so early: "+u.what, func() bool { return u.flow.Result().Received > r.Received })
	}
}

// awaitTurns waits until all the flows have turned for good, and returns how long after the moment each had, without
// stalls of the machine. A flow has closed when many datagrams in succession have got no answer: while the machine stands still,
// time passes without answers, too, but nothing is sent.
func awaitTurns(t testing.TB, since time.Time, turns ...*turn) (took []time.Duration) {
	t.Helper()
	stalls := testutil.WatchStalls(t)
	for _, u := range turns {
		r := u.flow.Result()
		u.seen, u.sent, u.at = r.Received, r.Sent, since
	}
	testutil.WaitFor(t, soon, "the flows to be judged by new policy", func() bool {
		turned := true
		for _, u := range turns {
			r, now := u.flow.Result(), time.Now()
			switch {
			case !u.opens && r.Received > u.seen:
				u.seen, u.sent, u.at = r.Received, r.Sent, now
				turned = false
			case !u.opens:
				turned = turned && r.Sent-u.sent > unanswered
			case r.Received == 0:
				turned = false
			case u.seen == 0:
				u.seen, u.at = r.Received, now
			}
		}
		return turned
	})
	for _, u := range turns {
		took = append(took, stalls.Between(since, u.at))
	}
	return took
}

// stop demands that the flow has turned once and no more: that what it lost, it lost at its beginning or its end.
func (u *turn) stop(t testing.TB) {
	t.Helper()
	r := u.flow.StopCut() // answers are missing on either side of a turn, so there is nothing to wait for at length
	if r.Received == 0 || r.Lost != r.LongestGap || r.Duplicated != 0 {
		t.Errorf("%s: it has not turned once: %+v", u.what, r)
	}
}
