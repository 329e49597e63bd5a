package hostile

import (
	"context"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	longEnv       = "MARGAY_E2E_LONG"
	queriesAtOnce = 256     // what fits the queues on the way
	queriesShort  = 450_000 // three times what can be on record
	queriesRate   = 20_000  // a second, of the long version
	queriesLong   = queriesRate * 600
	queriesLooks  = 20 // at the tables, in the short version; the long one looks after as many queries
	// queriesRoom is how many flows that policy has judged once can be on record: those of five pods and those in common.
	queriesRoom = int(bpf.HalfCommon) + 5*int(bpf.MargayFlowLimitsHALF_SHARE)
)

// A DNS server is asked, and itself asks, as fast as the machine lets it; each query has a port of its own and is answered at once. No
// table is filled: a third pod opens connections all the time, and its live one goes on. With MARGAY_E2E_LONG=1 it is for ten minutes, at
// 20,000 queries a second.
func TestABusyDNSServerFillsNothing(t *testing.T) {
	s := newScene(t)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 80}]}]}`)
	s.AwaitPolicies(s.b, 1, 0)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, ingress: [{ports: [{protocol: UDP}]}]}`)
	s.AwaitPolicies(s.m, 1, 0)
	q := newQueries(t, s)
	total, begun := queriesShort, time.Now()
	if testutil.Getenv(longEnv) == "1" {
		total = queriesLong
	}
	before, most := q.arrived(), 0
	for sent := 0; sent < total; sent += queriesShort / queriesLooks {
		q.send(sent, queriesShort/queriesLooks)
		if total == queriesLong {
			time.Sleep(time.Until(begun.Add(time.Duration(sent) * time.Second / queriesRate))) // the rate, not a synchronisation
		}
		most = max(most, q.look())
	}
	took := time.Since(begun)
	rate := float64(total) / took.Seconds()
	t.Logf("%d queries in %v, %.0f a second; at most %d flows on record", total, took, rate, most)
	if n := q.arrived() - before; n < uint64(total)*9/10 {
		t.Errorf("only %d queries and answers came to the other end of %d", n, total)
	}
	if total == queriesLong && rate < 0.9*queriesRate {
		t.Errorf("%.0f queries a second, want %d: the machine is too slow for this, or too busy", rate, queriesRate)
	}
	q.stop()
}

// queries are between the server evil/m on the first node and evil/e on the second, beside what shop/a has with shop/b.
type queries struct {
	*scene
	t             *testing.T
	server, other *traffic.FrameSender
	open          *echo.Server
	live          *echo.Stream
	table         *conntrack.Conn
}

func newQueries(t *testing.T, s *scene) *queries {
	t.Helper()
	q := &queries{scene: s, t: t}
	muteStack(t, s.m)
	muteStack(t, s.e)
	var err error
	if q.server, err = traffic.OpenFrameSender(s.m.Host, "eth0"); err != nil {
		t.Fatal(err)
	}
	if q.other, err = traffic.OpenFrameSender(s.e.Host, "eth0"); err != nil {
		t.Fatal(err)
	}
	q.open, _ = s.Serve(s.b.Host, 80)
	if q.live, err = echo.StartStream(s.a.Host, q.open.Addr4(), echo.StreamOptions{Timeout: soon}); err != nil {
		t.Fatal(err)
	}
	if err := s.n1.Do(func() (err error) { q.table, err = conntrack.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.table.Close() })
	return q
}

// send sends n queries and their answers, from the first-th on: one part from the server and the next one to it, by turns of either family.
func (q *queries) send(first, n int) {
	q.t.Helper()
	for at := first; at < first+n; at += queriesAtOnce {
		from, to, asks, answers := q.m, q.e, q.server, q.other
		turn := at / queriesAtOnce
		if turn&1 != 0 {
			from, to, asks, answers = to, from, answers, asks
		}
		questions, replies := questionsOf(from, to, turn&2 != 0, at, min(queriesAtOnce, first+n-at))
		if err := asks.Send(questions); err != nil {
			q.t.Fatal(err)
		}
		if err := answers.Send(replies); err != nil {
			q.t.Fatal(err)
		}
	}
}

// questionsOf are n queries, each from a port that none of the 60,000 before had, and their answers.
func questionsOf(from, to *lab.Pod, v6 bool, first, n int) (questions, replies [][]byte) {
	for i := first; i < first+n; i++ {
		p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), Payload: make([]byte, 40),
			L4: testutil.UDP{SrcPort: uint16(1024 + i%60_000), DstPort: uint16(53 + i/60_000)}}
		questions = append(questions, frame(from, p))
		replies = append(replies, frame(to, answer(p)))
	}
	return questions, replies
}

// look returns how many flows are on record, and demands that it is not too many and that others have room.
func (q *queries) look() (flows int) {
	q.t.Helper()
	if tracked, room, err := q.table.Usage(); err != nil || room > 0 && tracked >= room {
		q.t.Errorf("the kernel tracks %d connections of %d: %v", tracked, room, err)
	} else {
		flows = int(tracked)
	}
	if !testcluster.IPTables() {
		use, err := q.Agent(0).Maps().Flows.Use(context.Background())
		if err != nil {
			q.t.Fatal(err)
		}
		flows = int(use[bpf.MargayMapCt4].Entries + use[bpf.MargayMapCt6].Entries)
		if flows > queriesRoom {
			q.t.Errorf("%d flows are on record, at most %d can be that are not open", flows, queriesRoom)
		}
	}
	c, err := traffic.OpenTCP(q.a.Host, q.open.Addr4(), soon)
	if err != nil {
		q.t.Fatalf("a new connection of another pod, beside %d flows: %v", flows, err)
	}
	c.Close()
	return flows
}

// arrived is how many packets both ends have received.
func (q *queries) arrived() (n uint64) {
	q.t.Helper()
	for _, p := range []*lab.Pod{q.m, q.e} {
		eth0, err := p.Netlink().LinkByName("eth0")
		if err != nil {
			q.t.Fatal(err)
		}
		n += eth0.Attrs().Statistics.RxPackets
	}
	return n / 2
}

// stop demands that the live connection goes on, and that no query counts as an open flow.
func (q *queries) stop() {
	q.t.Helper()
	received := q.live.Result().Received
	testutil.WaitFor(q.t, soon, "the live connection to go on", func() bool { return q.live.Result().Received > received })
	if r := q.live.Stop(); r.Connects != 1 || r.Errors > 0 {
		q.t.Errorf("the live connection: %+v", r)
	}
	if testcluster.IPTables() {
		return
	}
	shares, err := q.Agent(0).Maps().Flows.Shares()
	if err != nil {
		q.t.Fatal(err)
	}
	for i, s := range shares {
		if s.Refused > 0 {
			q.t.Errorf("share %d was refused %d open flows", i, s.Refused)
		}
	}
}
