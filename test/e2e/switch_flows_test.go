package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Both ends may only do what the test does, so that each answer needs its flow.
const (
	mayOnlyAsk = `{podSelector: {matchExpressions: [{key: app, operator: In, values: [client, asker]}]}, policyTypes: [Ingress, Egress],
		egress: [{to: [{podSelector: {matchLabels: {app: server}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
	mayOnlyAnswer = `{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress],
		ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
	mayBePinged = `{podSelector: {matchLabels: {app: quiet}}, policyTypes: [Ingress, Egress],
		ingress: [{from: [{podSelector: {matchLabels: {app: pinger}}}]}]}`
)

// firstPort is the first source port of connections whose port is chosen.
const firstPort = 20000

// switchScene is a node with flows of every kind that are carried over, and others that policy denies.
type switchScene struct {
	*cluster
	client, asker, server, pinger, quiet *lab.Pod
	outside                              *lab.External
	tcp, udp, denied                     *echo.Server
	services                             []netip.Addr
	streams                              []*echo.Stream
	flows                                []*traffic.UDPFlow
	probers                              []*traffic.Prober
	crossing                             *traffic.Crossing // what client and server send each other over TCP
	idle                                 []net.Conn
	attempts                             *attempts
}

func newSwitchScene(t *testing.T, flags ...string) *switchScene {
	c := newCluster(t, oneNode, flags...)
	n := c.Node(0)
	s := &switchScene{cluster: c, client: c.Pod(n, "client"), asker: c.Pod(n, "asker"), server: c.Pod(n, "server"), pinger: c.Pod(n, "pinger"), quiet: c.Pod(n, "quiet"),
		outside: c.External("outside"), services: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd96::1")}}
	c.Policy("client", mayOnlyAsk)
	c.Policy("server", mayOnlyAnswer)
	c.Policy("quiet", mayBePinged)
	c.Write("service.yaml", fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: server, namespace: default}\nspec: {clusterIP: %s, clusterIPs: [%s, \"%s\"], ports: [{port: 80}]}\n",
		s.services[0], s.services[0], s.services[1]))
	c.AwaitPolicies(s.client, 1, 1)
	c.AwaitPolicies(s.asker, 1, 1)
	c.AwaitPolicies(s.server, 1, 1)
	c.AwaitPolicies(s.quiet, 1, 1)
	s.tcp, s.udp = c.Serve(s.server.Host, 80)
	s.denied, _ = c.Serve(s.server.Host, 81)
	for _, a := range s.services {
		for _, protocol := range []string{"tcp", "udp"} {
			if err := n.SetService(lab.Service{Addr: netip.AddrPortFrom(a, 80), Protocol: protocol, Backends: []netip.AddrPort{s.at(a.Is6())}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

func (s *switchScene) at(v6 bool) netip.AddrPort { return netip.AddrPortFrom(s.server.Addr(v6), 80) }

// begin starts all flows.
func (s *switchScene) begin() {
	s.T.Helper()
	s.attempts = &attempts{failed: map[string]int{}, done: make(chan struct{})}
	var direct, services []traffic.Target
	var err error
	asked := []netip.AddrPort{s.at(false), s.at(true), netip.AddrPortFrom(s.services[0], 80), netip.AddrPortFrom(s.services[1], 80)}
	if s.crossing, err = traffic.OpenCrossing(s.client, s.server, 80, asked...); err != nil {
		s.T.Fatal(err)
	}
	for i, v6 := range []bool{false, true} {
		direct, service := s.at(v6), netip.AddrPortFrom(s.services[i], 80)
		s.ports("20000 24999")
		s.keep(s.client.Host, direct)
		s.ports("25000 29999")
		s.keep(s.client.Host, service)
		s.keep(s.Node(0).Host, direct)
		s.keep(s.outside.Host, direct)
	}
	s.ports("30000 60999")
	for i, v6 := range []bool{false, true} {
		at, service := s.at(v6), netip.AddrPortFrom(s.services[i], 80)
		direct = append(direct, traffic.Target{Addr: at, Allowed: true, Timeout: soon}, traffic.Target{Addr: netip.AddrPortFrom(at.Addr(), 81)})
		services = append(services, traffic.Target{Addr: service, Allowed: true, Timeout: soon})
		for name, from := range map[string]*lab.Host{"the client": s.client.Host, "the node": s.Node(0).Host, "outside": s.outside.Host} {
			s.attempts.repeat(fmt.Sprintf("UDP from %s to %v", name, at), func() echo.Attempt { return echo.ExchangeUDP(from, at, []byte("x"), soon) })
		}
		s.attempts.repeat(fmt.Sprintf("UDP to %v", service), func() echo.Attempt { return echo.ExchangeUDP(s.asker.Host, service, []byte("x"), soon) })
		to := s.quiet.Addr(v6)
		s.attempts.repeat(fmt.Sprintf("ping %v", to), func() echo.Attempt { return traffic.Ping(s.pinger.Host, to, soon) })
		s.attempts.repeat(fmt.Sprintf("ping %v from the node", to), func() echo.Attempt { return traffic.Ping(s.Node(0).Host, to, soon) })
	}
	s.probe(s.client, direct)
	s.probe(s.asker, services)
	s.some("at first")
}

// probe opens new connections all the time. Those to pods and those to Services are of two pods: of one, two could get the same port
// by chance, and so the same ends (docs/datapath.md, Shortcut).
func (s *switchScene) probe(from *lab.Pod, targets []traffic.Target) {
	s.T.Helper()
	p, err := traffic.StartProber(from.Host, traffic.ProberOptions{Interval: 20 * time.Millisecond}, targets...)
	if err != nil {
		s.T.Fatal(err)
	}
	s.probers = append(s.probers, p)
}

// results are those of all probers.
func (s *switchScene) results(of func(*traffic.Prober) []traffic.ProbeResult) (list []traffic.ProbeResult) {
	for _, p := range s.probers {
		list = append(list, of(p)...)
	}
	return list
}

// ports are those that new sockets of the client get. Connections that stay have ports of their own: a new one to a Service from a port
// that a direct connection to the backend has would be given the same ends, where that one goes past the node's stack (docs/datapath.md).
func (s *switchScene) ports(fromTo string) {
	s.T.Helper()
	if err := s.client.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(fromTo), 0o644) }); err != nil {
		s.T.Fatal(err)
	}
}

// keep starts a stream, a flow of datagrams and a connection that is idle.
func (s *switchScene) keep(from *lab.Host, to netip.AddrPort) {
	s.T.Helper()
	stream, err1 := echo.StartStream(from, to, echo.StreamOptions{})
	flow, err2 := traffic.StartUDPFlow(from, to, traffic.UDPFlowOptions{Interval: 5 * time.Millisecond, Grace: soon})
	idle, err3 := traffic.OpenTCP(from, to, 5*time.Second)
	for _, err := range []error{err1, err2, err3} {
		if err != nil {
			s.T.Fatal(err)
		}
	}
	s.streams, s.flows, s.idle = append(s.streams, stream), append(s.flows, flow), append(s.idle, idle)
	s.speak(idle)
}

// speak sends something on a connection that was idle, and waits for its echo.
func (s *switchScene) speak(c net.Conn) {
	s.T.Helper()
	text := "still here"
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		s.T.Fatal(err)
	}
	if _, err := c.Write([]byte(text)); err != nil {
		s.T.Errorf("an idle connection of %v to %v: %v", c.LocalAddr(), c.RemoteAddr(), err)
		return
	}
	var got []byte
	for b := make([]byte, 256); !strings.HasSuffix(string(got), text); {
		n, err := c.Read(b)
		if got = append(got, b[:n]...); err != nil {
			s.T.Errorf("an idle connection of %v to %v: %q, %v", c.LocalAddr(), c.RemoteAddr(), got, err)
			return
		}
	}
}

// some waits until every flow has got on.
func (s *switchScene) some(what string) {
	s.T.Helper()
	testutil.WaitForMore(s.T, soon, "traffic "+what, 3, func() (list []uint64) {
		for i := range s.streams {
			list = append(list, s.streams[i].Result().Received, s.flows[i].Result().Received)
		}
		for _, r := range s.results((*traffic.Prober).Results) {
			list = append(list, r.Attempts)
		}
		return list
	})
}

// end stops everything, and fails the test if a packet was lost or misjudged.
func (s *switchScene) end() {
	s.T.Helper()
	for i, stream := range s.streams {
		if r := stream.Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			s.T.Errorf("stream %d: %+v", i, r)
		}
	}
	datagrams, opened := uint64(0), uint64(0)
	for i, flow := range s.flows {
		r := flow.Stop()
		if datagrams += r.Sent; r.Lost != 0 || r.Refused != 0 || r.SendErrors != 0 {
			s.T.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	for _, r := range s.results((*traffic.Prober).Stop) {
		if opened += r.Attempts; r.Wrong != 0 {
			s.T.Errorf("%d of %d attempts at %s are wrong (allowed: %v): %v, first %+v", r.Wrong, r.Attempts, r.Target.Addr, r.Target.Allowed, r.Outcomes, r.FirstWrong)
		}
	}
	if n := s.denied.Accepted(); n != 0 {
		s.T.Errorf("the denied port has accepted %d connections", n)
	}
	n, failed := s.attempts.stop()
	if len(failed) > 0 {
		s.T.Errorf("of %d exchanges of new flows these failed: %v", n, failed)
	}
	segments := s.crossing.Stop(soon)
	if segments.LostAll != 0 || segments.Unseen != 0 {
		s.T.Errorf("TCP segments: %+v", segments)
	}
	s.T.Logf("%d datagrams of old flows, %d new TCP connections, %d exchanges of other new flows, %d TCP segments with SYN or data",
		datagrams, opened, n, segments.Left)
}

// attempts are exchanges that are repeated, each a new flow.
type attempts struct {
	group  sync.WaitGroup
	done   chan struct{}
	mu     sync.Mutex
	n      int
	failed map[string]int // by what it was, and its outcome
}

func (a *attempts) repeat(what string, do func() echo.Attempt) {
	a.repeatEvery(15*time.Millisecond, what, do)
}

func (a *attempts) repeatEvery(pause time.Duration, what string, do func() echo.Attempt) {
	a.group.Go(func() {
		for {
			select {
			case <-a.done:
				return
			case <-time.After(pause):
			}
			r := do()
			a.mu.Lock()
			if a.n++; r.Outcome != echo.Connected {
				a.failed[fmt.Sprintf("%s: %v", what, r.Outcome)]++
			}
			a.mu.Unlock()
		}
	})
}

func (a *attempts) stop() (n int, failed map[string]int) {
	close(a.done)
	a.group.Wait()
	return a.n, a.failed
}

// TestNoFlowIsLostInASwitch: flows of pods of one node, through Services, of the node and of a host outside, answers of which need
// their flow, pings, and connections that are idle meanwhile. With MARGAY_E2E_SWITCHES more than four times.
func TestNoFlowIsLostInASwitch(t *testing.T) {
	s := newSwitchScene(t)
	s.begin()
	a := s.Agent(0)
	flags := a.Flags
	var took []time.Duration
	for i := range switches(t) {
		mode := modes[i%len(modes)]
		a.Kill()
		a.Flags = append(append([]string{}, flags...), mode...)
		begun := time.Now()
		a.Start()
		took = append(took, time.Since(begun))
		s.some("in mode " + strings.Join(mode, " "))
		for _, c := range s.idle {
			s.speak(c)
		}
	}
	s.end()
	slices.Sort(took)
	t.Logf("%d switches, from the start of a process to ready: median %v, longest %v", len(took), took[len(took)/2], took[len(took)-1])
}

// TestKeptFlowsOutliveSwitches: with existingConnections: keep, flows that policy denies by now go on in the other mode, past the
// node's network stack or not, and after restarts in either mode and with another backend, and new ones are denied.
func TestKeptFlowsOutliveSwitches(t *testing.T) {
	c := newCluster(t, oneNode, "--existing-connections", "keep", "--dataplane", "bpf")
	db, bad, outside := c.Pod(c.Node(0), "db"), c.Pod(c.Node(0), "bad"), c.External("outside")
	tcp, udp := c.Serve(db.Host, 80)
	old := startLive(t, bad, tcp, udp)
	far, err := traffic.OpenTCP(outside.Host, tcp.Addr4(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s := &switchScene{cluster: c}
	s.speak(far)
	c.Policy("db", onlyGood)
	c.AwaitPolicies(db, 1, 0)
	c.Reach(bad.Host, db.Host, 80, false)
	a := c.Agent(0)
	flags := a.Flags
	restarts := [][]string{modes[0], modes[0], modes[2], modes[1], modes[1], modes[2]}
	for _, mode := range restarts {
		a.Kill()
		a.Flags = append(append([]string{}, flags...), mode...)
		a.Start()
		c.Reach(bad.Host, db.Host, 80, false)
		c.Reach(outside.Host, db.Host, 80, false)
		old.awaitMore("in mode " + strings.Join(mode, " "))
		s.speak(far)
	}
	old.stopUndisturbed()
}

// TestAFlowThatPolicyDeniesByTheEndOfASwitchIsCut: the policy changes while no agent runs. TCP is reset at both ends, and no answer
// comes over UDP.
func TestAFlowThatPolicyDeniesByTheEndOfASwitchIsCut(t *testing.T) {
	c := newCluster(t, oneNode, "--dataplane", "bpf")
	client, server := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "server")
	c.Policy("server", onlyOpen)
	c.AwaitPolicies(server, 1, 0)
	a := c.Agent(0)
	flags := a.Flags
	for i, mode := range modes {
		port := uint16(9000 + i)
		l, u := c.Serve(server.Host, port)
		c.Policy("server", fmt.Sprintf(`{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: %d}, {port: %d, protocol: UDP}]}]}`, port, port))
		old := startLive(t, client, l, u)
		accepted := l.Accepted()
		a.Kill()
		c.Policy("server", onlyOpen)
		a.Flags = append(append([]string{}, flags...), mode...)
		a.Start()
		what := "in mode " + strings.Join(mode, " ")
		testutil.WaitFor(t, soon, "the stream to be cut "+what, func() bool { return old.stream.Result().Errors > 0 })
		testutil.WaitFor(t, soon, "the datagrams to be cut "+what, func() bool { return old.flow.Result().LongestGap > aGap })
		before := old.flow.Result().Received
		c.Reach(client.Host, server.Host, port, false)
		if n := old.flow.Result().Received; n != before {
			t.Errorf("%s %d datagrams were answered", what, n-before)
		}
		if n := l.Accepted(); n != accepted {
			t.Errorf("%s %d connections were accepted", what, n-accepted)
		}
		old.stream.Stop()
		old.flow.StopCut()
	}
}

// TestAConnectionByTheShortcutOutlivesASwitchBesideAnOldEntry: the kernel remembers a connection that has ended, by a Service or not, and
// a pod has another one with the same ends by the shortcut, of which the kernel knows nothing. After the switch it knows that one.
func TestAConnectionByTheShortcutOutlivesASwitchBesideAnOldEntry(t *testing.T) {
	s := newSwitchScene(t, modes[0]...)
	reuse := func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_tw_reuse", []byte("1"), 0o644) }
	if err := s.client.Do(reuse); err != nil {
		t.Fatal(err)
	}
	a := s.Agent(0)
	start := func(mode []string) {
		a.Kill()
		a.Flags = append(slices.Clone(a.Flags), mode...)
		a.Start()
	}
	type ended struct {
		at   netip.AddrPort
		port string
	}
	for i, v6 := range []bool{false, true} {
		for k, e := range []ended{{netip.AddrPortFrom(s.services[i], 80), "40000 40000"}, {s.at(v6), "40001 40001"}} {
			s.ports(e.port)
			if got := echo.DialTCP(s.client.Host, e.at, soon); got.Outcome != echo.Connected {
				t.Fatalf("%d: %v: %+v", k, e.at, got)
			}
		}
	}
	start(modes[1])
	for _, v6 := range []bool{false, true} {
		for _, port := range []string{"40000 40000", "40001 40001"} {
			s.ports(port)
			var c net.Conn
			testutil.WaitFor(t, soon, "the port to be free again", func() (ok bool) {
				var err error
				c, err = traffic.OpenTCP(s.client.Host, s.at(v6), soon)
				return err == nil
			})
			s.speak(c)
			s.idle = append(s.idle, c)
		}
	}
	for _, mode := range [][]string{modes[2], modes[1], modes[0]} {
		start(mode)
		for _, c := range s.idle {
			s.speak(c)
		}
	}
}

// TestNewConnectionsOutliveASwitchBesideOldEntries: a pod connects to a Service and then, from the same port, to the pod behind it. The
// kernel remembers the first connection and knows nothing of the second, by the shortcut. One of these is open or about to open at
// any moment of a switch.
func TestNewConnectionsOutliveASwitchBesideOldEntries(t *testing.T) {
	s := newSwitchScene(t)
	s.attempts = &attempts{failed: map[string]int{}, done: make(chan struct{})}
	var opened [2]atomic.Int64
	for i, v6 := range []bool{false, true} {
		src, service, direct := s.client.Addr(v6), netip.AddrPortFrom(s.services[i], 80), s.at(v6)
		port := uint16(firstPort)
		s.attempts.repeatEvery(0, fmt.Sprintf("to %v and then to %v", service, direct), func() echo.Attempt {
			port = max(firstPort, port+1)
			from := netip.AddrPortFrom(src, port)
			if a := echo.DialTCPFrom(s.client.Host, from, service, soon); a.Outcome != echo.Connected {
				return a
			}
			opened[i].Add(1)
			return echo.DialTCPFrom(s.client.Host, from, direct, soon)
		})
	}
	some := func(what string) {
		before := [2]int64{opened[0].Load(), opened[1].Load()}
		testutil.WaitFor(t, soon, "connections "+what, func() bool {
			return opened[0].Load() >= before[0]+20 && opened[1].Load() >= before[1]+20
		})
	}
	some("at first")
	a := s.Agent(0)
	flags := a.Flags
	for i := range switches(t) {
		mode := modes[i%len(modes)]
		a.Kill()
		a.Flags = slices.Concat(flags, mode)
		a.Start()
		some("in mode " + strings.Join(mode, " "))
	}
	n, failed := s.attempts.stop()
	if len(failed) > 0 {
		t.Errorf("of %d pairs of connections these failed: %v", n, failed)
	}
	t.Logf("%d pairs of connections", n)
}
