package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	neighbours     = 100 // honest pods on each node
	latencyPairs   = 4
	latencyEvery   = 2 * time.Millisecond
	changesARound  = 20
	ruleCount      = 8_000 // of each of the tenant's policies: each rule a CIDR list and a port of its own
	tenantPause    = 10 * time.Millisecond
	tenantBurst    = 20 // frames, so 2,000 packets a second
	tenantChange   = time.Second
	tenantOut      = "MARGAY_E2E_TENANT_OUT"
	tenantMust     = 1.2
	openFlows      = 150_000
	halfOpenFlows  = 150_000
	firstFragments = 20_000
)

// One tenant is at every limit, sends and changes its policies all the time, beside 100 honest pods: their packets and
// their changes take as long as those of the same pods on a node without it. The two nodes are measured in turn, and the
// tenant rests while the other one is. Run by make bench-tenant.
func TestTenantAtEveryLimitDisturbsNobody(t *testing.T) {
	out := testutil.Getenv(tenantOut)
	if out == "" {
		t.Skipf("runs for minutes, with %s=FILE only", tenantOut)
	}
	var r tenantReport
	alone, beside := newNeighbours(t), newNeighbours(t)
	tenant := newTenant(beside)
	for range 2 { // the control: two nodes alike
		r.control.add(alone.measure(), beside.measure())
	}
	tenant.fill()
	t.Log("the tenant has filled what it can")
	for range testutil.Number(t, "MARGAY_E2E_TENANT_ROUNDS", 12) {
		a := alone.measure()
		stop := tenant.misbehave()
		b := beside.measure()
		stop()
		r.result.add(a, b)
	}
	r.atLimits = tenant.state()
	text := r.text()
	t.Log("\n" + text)
	if err := os.WriteFile(out, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, ratio := range r.result.ratios() {
		if ratio > tenantMust {
			t.Errorf("%s: %.2f of what it is without the tenant, must be %.2f at most", what, ratio, tenantMust)
		}
	}
}

// neighbourhood is a node with honest pods, every one with a policy of its own.
type neighbourhood struct {
	*testcluster.Cluster
	pods  []*lab.Pod
	next  int // whose policy changes next
	pairs []pair
}

// pair is an established UDP flow.
type pair struct {
	send func([]byte) error
	recv func(time.Time, []byte) error
}

func newNeighbours(t *testing.T) *neighbourhood {
	t.Helper()
	n := &neighbourhood{Cluster: testcluster.New(t, []string{"n1"})}
	for i := range neighbours {
		p := n.Plug(n.Node(0), fmt.Sprintf("p%d", i))
		n.Declare(p)
		n.Policy(fmt.Sprintf("p%d", i), fmt.Sprintf(`{podSelector: {matchLabels: {app: p%d}}, ingress: [{ports: [{port: 80, protocol: UDP}]}]}`, i))
		for _, port := range []uint16{80, 81} {
			if _, err := p.ListenUDP(port); err != nil {
				t.Fatal(err)
			}
		}
		n.pods = append(n.pods, p)
	}
	for _, p := range n.pods {
		n.AwaitPolicies(p, 1, 0)
	}
	for i := range latencyPairs {
		conn, err := n.pods[2*i].OpenUDP(netip.AddrPortFrom(n.pods[2*i+1].Addr4(), 80))
		if err != nil {
			t.Fatal(err)
		}
		n.pairs = append(n.pairs, pair{
			send: func(b []byte) error { _, err := conn.Write(b); return err },
			recv: func(until time.Time, b []byte) error {
				if err := conn.SetReadDeadline(until); err != nil {
					return err
				}
				_, err := conn.Read(b)
				return err
			},
		})
	}
	return n
}

// sample is what one round has measured.
type sample struct{ latency, change []time.Duration }

// measure changes policies one after the other, and beside it asks for answers on established flows.
func (n *neighbourhood) measure() (s sample) {
	n.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	var mu sync.Mutex
	for _, p := range n.pairs {
		asking.Go(func() {
			got := p.ask(ctx)
			mu.Lock()
			defer mu.Unlock()
			s.latency = append(s.latency, got...)
		})
	}
	for range changesARound {
		s.change = append(s.change, n.change())
	}
	cancel()
	asking.Wait()
	return s
}

// ask measures how long answers take; one that does not come within a second counts as that.
func (p pair) ask(ctx context.Context) (took []time.Duration) {
	tick := time.NewTicker(latencyEvery)
	defer tick.Stop()
	b := make([]byte, 512)
	for {
		select {
		case <-ctx.Done():
			return took
		case <-tick.C:
		}
		start := time.Now()
		if p.send([]byte("question")) == nil {
			_ = p.recv(start.Add(time.Second), b) // a lost one took a second
			took = append(took, time.Since(start))
		}
	}
}

// change opens a port of the next pod and returns how long it takes until it is open; then it closes it again.
func (n *neighbourhood) change() time.Duration {
	n.T.Helper()
	i := n.next % neighbours
	n.next++
	to := netip.AddrPortFrom(n.pods[i].Addr4(), 81)
	from := n.pods[(i+1)%neighbours]
	name := fmt.Sprintf("open-p%d", i)
	start := time.Now()
	n.Policy(name, fmt.Sprintf(`{podSelector: {matchLabels: {app: p%d}}, ingress: [{ports: [{port: 81, protocol: UDP}]}]}`, i))
	for {
		if a := from.ExchangeUDP(to, []byte("open?"), 2*time.Millisecond); a.Outcome == lab.Connected {
			break
		}
		if time.Since(start) > time.Minute {
			n.T.Fatalf("a change of %s is not enforced after a minute", n.pods[i].Name())
		}
	}
	took := time.Since(start)
	n.Remove("policy-" + name)
	return took
}

// tenant has three pods beside the neighbours.
type tenant struct {
	*neighbourhood
	pods  []*lab.Pod
	rand  *rand.Rand
	turns int
}

func newTenant(n *neighbourhood) *tenant {
	n.T.Helper()
	n.Namespace("evil")
	t := &tenant{neighbourhood: n, rand: rand.New(rand.NewPCG(1, 2))}
	for i := range 3 {
		t.pods = append(t.pods, n.Pod(n.Node(0), fmt.Sprintf("evil/t%d", i)))
	}
	return t
}

// fill takes all that the tenant can have.
func (t *tenant) fill() {
	t.T.Helper()
	for i := range t.pods {
		t.writePolicy(i)
	}
	a, b := t.pods[0], t.pods[1]
	for _, v6 := range []bool{false, true} {
		var there, back [][]byte
		for i := range openFlows {
			p := testutil.Packet{Src: a.Addr(v6), Dst: b.Addr(v6), L4: testutil.UDP{SrcPort: uint16(i), DstPort: uint16(7000 + i>>16)}}
			there, back = append(there, frame(a, p)), append(back, frame(b, answer(p)))
		}
		t.flood(a, there)
		t.flood(b, back)
		t.flood(a, there)
		t.flood(a, t.halfOpen(v6, halfOpenFlows))
		t.flood(a, t.fragments(v6, firstFragments))
	}
}

func (t *tenant) flood(p *lab.Pod, frames [][]byte) {
	t.T.Helper()
	sender, err := lab.OpenFrameSender(p.Host, "eth0")
	if err != nil {
		t.T.Fatal(err)
	}
	defer sender.Close()
	if err := sender.Send(frames); err != nil {
		t.T.Fatal(err)
	}
}

// halfOpen are first packets of flows to an address that does not answer.
func (t *tenant) halfOpen(v6 bool, n int) (frames [][]byte) {
	to := netip.MustParseAddr("192.0.2.200")
	if v6 {
		to = netip.MustParseAddr("2001:db8::200")
	}
	p := t.pods[0]
	for range n {
		l4 := testutil.TCP{SrcPort: uint16(t.rand.Uint32()), DstPort: uint16(t.rand.Uint32()), Flags: testutil.SYN}
		frames = append(frames, frame(p, testutil.Packet{Src: p.Addr(v6), Dst: to, L4: l4}))
	}
	return frames
}

func (t *tenant) fragments(v6 bool, n int) (frames [][]byte) {
	p := t.pods[0]
	for range n {
		first := testutil.Packet{Src: p.Addr(v6), Dst: t.pods[1].Addr(v6), ID: t.rand.Uint32(), L4: testutil.UDP{SrcPort: 1, DstPort: 2}, Payload: make([]byte, 64)}
		first.SrcMAC, first.DstMAC = p.MAC(), lab.HostMAC
		frames = append(frames, first.Fragments(32)[0])
	}
	return frames
}

// writePolicy gives a pod of the tenant a policy as large as the limits let it be, other than the one before. It allows
// what the tenant's own flows need.
func (t *tenant) writePolicy(i int) {
	t.T.Helper()
	t.turns++
	var b strings.Builder
	fmt.Fprintf(&b, `{podSelector: {matchLabels: {app: t%d}}, policyTypes: [Ingress, Egress], egress: [{}], ingress: [{from: [{podSelector: {}}]}`, i)
	for k := range ruleCount {
		fmt.Fprintf(&b, ", {from: [{ipBlock: {cidr: 172.%d.%d.0/%d}}], ports: [{port: %d}]}", 16+k>>8, k&255, 24+(k+t.turns)%8, 1+(k*7+t.turns)%65535)
	}
	b.WriteString("]}")
	t.Policy(fmt.Sprintf("evil/t%d", i), b.String())
}

// misbehave sends and changes policies until the returned function is called.
func (t *tenant) misbehave() (stop func()) {
	t.T.Helper()
	sender, err := lab.OpenFrameSender(t.pods[0].Host, "eth0")
	if err != nil {
		t.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		send, change := time.NewTicker(tenantPause), time.NewTicker(tenantChange)
		defer send.Stop()
		defer change.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-change.C:
				t.writePolicy(t.turns % len(t.pods))
			case <-send.C:
				v6 := t.rand.IntN(2) == 0
				frames := append(t.halfOpen(v6, tenantBurst-2), t.fragments(v6, 2)...)
				if err := sender.Send(frames); err != nil {
					t.T.Error(err)
					return
				}
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		if err := sender.Close(); err != nil {
			t.T.Error(err)
		}
	}
}

// state says how much of each table is in use.
func (t *tenant) state() string {
	t.T.Helper()
	use, err := t.Agent(0).Maps().Flows.Use(context.Background())
	if err != nil {
		t.T.Error(err)
	}
	var b strings.Builder
	for name, u := range use {
		fmt.Fprintf(&b, "%s %d of %d; ", name, u.Entries, u.Max)
	}
	return b.String()
}
