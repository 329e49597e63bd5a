package e2e

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const onlyGood = `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: good}}}]}]}`

// live is a TCP connection and a UDP flow of one pod that are under way.
type live struct {
	t      *testing.T
	stream *echo.Stream
	flow   *traffic.UDPFlow
}

// startLive starts both once the pod may connect: the agent at the other end learns of a new pod on its own.
func startLive(t *testing.T, p *lab.Pod, tcp, udp *echo.Server) live {
	t.Helper()
	testutil.WaitFor(t, soon, p.Name()+" to be admitted at the other end", func() bool {
		return echo.DialTCP(p.Host, tcp.Addr4(), never).Outcome == echo.Connected
	})
	stream, err := echo.StartStream(p.Host, tcp.Addr4(), echo.StreamOptions{Interval: time.Millisecond, Timeout: soon / 2})
	if err != nil {
		t.Fatal(err)
	}
	flow, err := traffic.StartUDPFlow(p.Host, udp.Addr6(), traffic.UDPFlowOptions{Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l := live{t, stream, flow}
	l.awaitMore("at first")
	return l
}

func (l live) awaitMore(what string) {
	l.t.Helper()
	s, f := l.stream.Result().Received, l.flow.Result().Received
	testutil.WaitFor(l.t, soon, "traffic "+what, func() bool {
		return l.stream.Result().Received > s+20 && l.flow.Result().Received > f+20
	})
}

func (l live) stopUndisturbed() {
	l.t.Helper()
	if r := l.stream.Stop(); r.Connects != 1 || r.Errors != 0 || r.Sent != r.Received {
		l.t.Errorf("the connection was disturbed: %+v", r)
	}
	if r := l.flow.Stop(); r.Lost != 0 || r.Duplicated != 0 {
		l.t.Errorf("the UDP flow was disturbed: %+v", r)
	}
}

// aGap is so many datagrams without an answer that the flow has been cut, not held up by the machine.
const aGap = 200

// wasReset reports whether the last connection that ended was reset, and did not wait until the end of its time.
func wasReset(r echo.StreamResult) bool {
	return errors.Is(r.LastErr, unix.ECONNRESET) || errors.Is(r.LastErr, unix.EPIPE)
}

// D-11: live flows that new policy denies are cut, TCP by resets, and those that it allows are not touched.
func TestRevokedFlowsAreCut(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		db := c.Pod(c.Node(0), "db")
		good, bad := c.Pod(c.Node(0), "good"), c.Pod(c.Node(0), "bad")
		tcp, udp := c.Serve(db.Host, 80)
		stays, cut := startLive(t, good, tcp, udp), startLive(t, bad, tcp, udp)
		c.Policy("db", onlyGood)
		testutil.WaitFor(t, soon, "the denied connection to end", func() bool { return cut.stream.Result().Errors > 0 })
		if r := cut.stream.Result(); !wasReset(r) {
			t.Errorf("the denied connection timed out rather than being reset: %+v", r)
		}
		testutil.WaitFor(t, soon, "the denied UDP flow to end", func() bool { return cut.flow.Result().LongestGap > aGap })
		stays.awaitMore("that is allowed")
		stays.stopUndisturbed()
		if r := cut.stream.Stop(); r.Connects != 1 {
			t.Errorf("the denied pod connected again: %+v", r)
		}
		if r := cut.flow.StopCut(); r.LongestGap != r.Lost {
			t.Errorf("datagrams of a denied flow got through after all: %+v", r)
		}
	})
}

// existingConnections: keep leaves them alone and refuses new ones.
func TestKeptFlowsGoOn(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, append(flags, "--existing-connections", "keep")...)
		db, bad := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "bad")
		tcp, udp := c.Serve(db.Host, 80)
		old := startLive(t, bad, tcp, udp)
		c.Policy("db", onlyGood)
		c.AwaitPolicies(db, 1, 0)
		c.Reach(bad.Host, db.Host, 80, false)
		old.awaitMore("after the change")
		old.stopUndisturbed()
	})
}

// A reply needs no rule, from either side, and does not make its direction open.
func TestRepliesNeedNoRule(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
		tcp, udp := c.Serve(server.Host, 80)
		c.Serve(client.Host, 80)
		// The client may only send, the server may only receive.
		c.Policy("client", `{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress], egress: [{}]}`)
		c.Policy("server", `{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress], ingress: [{}]}`)
		c.AwaitPolicies(client, 1, 1)
		c.AwaitPolicies(server, 1, 1)
		l := startLive(t, client, tcp, udp)
		c.Reach(server.Host, client.Host, 80, false)
		c.Reach(client.Host, server.Host, 0, true)
		l.awaitMore("beside what is denied")
		l.stopUndisturbed()
	})
}
