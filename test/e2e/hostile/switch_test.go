package hostile

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// switched are the modes that the agent of the first node is switched to in turn.
var switched = [][]string{
	{"--dataplane", "iptables"}, {"--dataplane", "bpf"},
}

// switchTo has the first node's agent come back in another mode.
func (s *scene) switchTo(flags, mode []string) {
	s.T.Helper()
	a := s.Agent(0)
	a.Kill()
	a.Flags = append(append([]string{}, flags...), mode...)
	a.Start()
}

// forgery shoots packets that claim to belong to flows that there are not, until it is stopped.
type forgery struct {
	group sync.WaitGroup
	done  chan struct{}
	mu    sync.Mutex
	sent  map[token]string // what each is
}

func (s *scene) forge(from *lab.Host, what string, packets ...testutil.Packet) *forgery {
	f := &forgery{done: make(chan struct{}), sent: map[token]string{}}
	f.group.Go(func() {
		for {
			for _, p := range packets {
				k := s.tokens.next()
				p.Payload = append(k.bytes(), p.Payload...)
				f.mu.Lock()
				f.sent[k] = fmt.Sprintf("%s, %v to %v, %#v", what, p.Src, p.Dst, p.L4)
				f.mu.Unlock()
				if err := traffic.SendRaw(from, p.IP(), p.Dst); err != nil {
					s.T.Errorf("%s: %v", what, err)
					return
				}
			}
			select {
			case <-f.done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	return f
}

// none stops it and fails the test if any packet has arrived.
func (f *forgery) none(t *testing.T, at ...*witness) {
	t.Helper()
	close(f.done)
	f.group.Wait()
	time.Sleep(never / 10) // for those that are under way
	arrived := 0
	for k, what := range f.sent {
		for _, w := range at {
			if w.saw(k) == nil {
				continue
			}
			if arrived++; arrived <= 5 {
				t.Errorf("%s has arrived", what)
			}
		}
	}
	t.Logf("of %d forged packets %d have arrived", len(f.sent), arrived)
}

// TestASwitchBelievesNoForgedFlow: a pod that may open nothing sends answers that nobody has asked for, and others send to a closed
// pod what they claim to be parts of connections, before, while and after the mode is switched (D-20).
func TestASwitchBelievesNoForgedFlow(t *testing.T) {
	s := newScene(t, "--dataplane", "bpf")
	s.followed()
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress, Egress], ingress: [{ports: [{port: 443}, {port: 443, protocol: UDP}]}]}`)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress, Egress]}`)
	s.AwaitPolicies(s.a, 1, 1)
	s.AwaitPolicies(s.b, 1, 1)
	s.forgetFlows(0)
	at := []*witness{s.watch(s.ext.Host), s.watch(s.m.Host), s.watch(s.c.Host), s.watch(s.b.Host)}
	var forged []*forgery
	for _, v6 := range []bool{false, true} {
		var answers []testutil.Packet
		for _, to := range []netip.Addr{s.ext.Addr(v6), s.m.Addr(v6), s.c.Addr(v6)} {
			answers = append(answers, segment(s.a.Addr(v6), to, 443, 9999), s.from(s.a, addressed(to), v6, testutil.UDP{SrcPort: 443, DstPort: 9999}))
		}
		forged = append(forged, s.forge(s.a.Host, "an answer", answers...))
		for what, from := range map[string]*lab.Host{"from outside": s.ext.Host, "from a pod of the node": s.m.Host} {
			src := from.Addr(v6)
			forged = append(forged, s.forge(from, what, segment(src, s.b.Addr(v6), 80, 9999),
				testutil.Packet{Src: src, Dst: s.b.Addr(v6), L4: testutil.UDP{SrcPort: 80, DstPort: 9999}}))
		}
	}
	flags := s.Agent(0).Flags
	for _, mode := range switched {
		s.switchTo(flags, mode)
	}
	for _, f := range forged {
		f.none(t, at...)
	}
	s.Remove("policy-a")
	families(t, func(t *testing.T, v6 bool) {
		testutil.WaitFor(t, soon, "an answer to arrive that policy allows", func() bool {
			return s.arrives(s.shoot(t, s.a.Host, segment(s.a.Addr(v6), s.ext.Addr(v6), 443, 9999)), never, at) != nil
		})
	})
}

// addressed is an address as something that has it.
type addressed netip.Addr

// Addr is the address, whichever version is asked for.
func (a addressed) Addr(bool) netip.Addr { return netip.Addr(a) }

// TestABackendThatChangesAfterASwitchIsJudged: a flow through a Service that was carried over is allowed to the backend that was judged,
// not to the next one (D-21).
func TestABackendThatChangesAfterASwitchIsJudged(t *testing.T) {
	s := newScene(t, "--dataplane", "bpf")
	s.Policy("a", onlyC)
	s.AwaitPolicies(s.a, 0, 1)
	flags := s.Agent(0).Flags
	atC, atM := s.watch(s.c.Host), s.watch(s.m.Host)
	for i, mode := range switched {
		front := map[bool]netip.AddrPort{false: netip.MustParseAddrPort(fmt.Sprintf("10.96.0.%d:80", 40+i)), true: netip.MustParseAddrPort(fmt.Sprintf("[fd96::%d]:80", 40+i))}
		for v6, f := range front {
			s.service(fmt.Sprintf("s%d-%t", i, v6), f, "tcp", netip.AddrPortFrom(s.c.Addr(v6), 80))
		}
		send := func(t *testing.T, v6 bool, flags uint8) token {
			return s.shoot(t, s.a.Host, testutil.Packet{Src: s.a.Addr(v6), Dst: front[v6].Addr(),
				L4: testutil.TCP{SrcPort: 5000 + uint16(i), DstPort: 80, Seq: 1, Ack: 1, Flags: flags}})
		}
		families(t, func(t *testing.T, v6 bool) {
			testutil.WaitFor(t, soon, "the Service to be known", func() bool {
				return s.arrives(send(t, v6, testutil.SYN), never, []*witness{atC}) != nil
			})
			s.expect(t, "the next packet", send(t, v6, testutil.ACK), true, atC)
		})
		s.switchTo(flags, mode)
		for v6, f := range front {
			s.translate(f, "tcp", netip.AddrPortFrom(s.m.Addr(v6), 80))
		}
		s.forgetConnections(0)
		families(t, func(t *testing.T, v6 bool) {
			for range 3 {
				s.expect(t, fmt.Sprintf("to another backend, after a switch to %v", mode), send(t, v6, testutil.ACK), false, atM)
			}
		})
	}
}

// TestASwitchBelievesNoFlowFromAListedSource: a pod sends in the name of a machine's server what policy of another pod denies, so the
// kernel has a connection that the machine seems to have opened. After the switch, the other pod opens one with the same ends, and
// gets an answer.
func TestASwitchBelievesNoFlowFromAListedSource(t *testing.T) {
	s := newScene(t, "--dataplane", "bpf", "--workload-source-spoofing", "Any")
	s.followed()
	s.Serve(s.ext.Host, 53)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.a, 1, 0)
	s.lists(s.m, "0.0.0.0/0", "::/0")
	flags := s.Agent(0).Flags
	at := s.watch(s.a.Host)
	for i, mode := range switched {
		port := 5300 + uint16(i)
		families(t, func(t *testing.T, v6 bool) {
			p := testutil.Packet{Src: s.ext.Addr(v6), Dst: s.a.Addr(v6), L4: testutil.UDP{SrcPort: 53, DstPort: port}}
			s.play(t, []attack{{what: "a query in the machine's name", from: s.m, frames: bearing(s.m, p)}}, at)
		})
		s.switchTo(flags, mode)
		families(t, func(t *testing.T, v6 bool) {
			src, dst := netip.AddrPortFrom(s.a.Addr(v6), port), netip.AddrPortFrom(s.ext.Addr(v6), 53)
			if got := echo.ExchangeUDPFrom(s.a.Host, src, dst, []byte("query"), soon); got.Outcome != echo.Connected {
				t.Errorf("a query from %v to %v, after a switch to %v: %v, %v", src, dst, mode, got.Outcome, got.Err)
			}
		})
	}
}

// TestASwitchResetsNothingThatPolicyHasNeverAllowed: the numbers in a reset are the sender's, so a reset of a connection that the other end
// has never allowed would carry something to it that policy denies. Which end allowed a flow goes along with the switch.
func TestASwitchResetsNothingThatPolicyHasNeverAllowed(t *testing.T) {
	s := newScene(t, append(fuzzFlags, "--dataplane", "bpf")...)
	muteStack(t, s.m)
	muteStack(t, s.b)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: a}}}]}]}`)
	s.AwaitPolicies(s.b, 1, 0)
	got := s.resetsAt(t, s.b.Host)
	at := s.watch(s.b.Host)
	flags := s.Agent(0).Flags
	var packets []testutil.Packet
	for i, f := range []uint8{testutil.ACK, testutil.SYN | testutil.ACK} {
		packets = append(packets, testutil.Packet{Src: s.m.Addr4(), Dst: s.b.Addr4(),
			L4: testutil.TCP{SrcPort: 1000 + uint16(i), DstPort: 80, Flags: f, Seq: secret, Ack: secret}})
	}
	for _, mode := range switched {
		done := s.repeat(t, s.m, packets...)
		s.switchTo(flags, mode)
		s.play(t, []attack{{what: fmt.Sprintf("what policy allows, after a switch to %v", mode), from: s.a, want: true,
			frames: bearing(s.a, s.from(s.a, s.b, false, testutil.UDP{SrcPort: 1, DstPort: 1}))}}, at)
		pause(never)
		done()
		if n := got(); n > 0 {
			t.Errorf("%d resets with numbers of evil/m have arrived by the end of a switch to %v", n, mode)
		}
	}
}

// repeat sends packets again and again until the returned function is called.
func (s *scene) repeat(t *testing.T, from *lab.Pod, packets ...testutil.Packet) (end func()) {
	t.Helper()
	var frames [][]byte
	for _, p := range packets {
		frames = append(frames, frame(from, p))
	}
	done, group := make(chan struct{}), sync.WaitGroup{}
	group.Go(func() {
		for tick := time.Tick(5 * time.Millisecond); ; {
			for _, f := range frames {
				if err := traffic.SendFrame(from.Host, "eth0", f); err != nil {
					t.Error(err)
					return
				}
			}
			select {
			case <-done:
				return
			case <-tick:
			}
		}
	})
	return func() { close(done); group.Wait() }
}
