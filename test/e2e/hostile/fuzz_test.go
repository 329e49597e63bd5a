package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

const (
	fuzzBurst = 24                    // groups of frames that an attacker sends at once
	fuzzPause = 10 * time.Millisecond // from one burst to the next
	fuzzShown = 2                     // violations of a kind that are shown
)

// Attackers on both nodes send random packets of every kind at everybody. What arrives anywhere is what the oracle
// allows and nothing else; tables stay within their bounds, the agents stay ready, and the others' flows lose nothing.
//
// MARGAY_E2E_FUZZ_SECONDS says for how long, MARGAY_E2E_FUZZ_SEED repeats a run: its packets are the same but for the
// ports that the kernel gave to the live flows.
func TestFuzzingAttackersGetNowhere(t *testing.T) {
	seconds := testutil.Number(t, "MARGAY_E2E_FUZZ_SECONDS", 20)
	seed := testutil.Number(t, "MARGAY_E2E_FUZZ_SEED", uint64(time.Now().UnixNano()))
	t.Logf("MARGAY_E2E_FUZZ_SECONDS=%d MARGAY_E2E_FUZZ_SEED=%d", seconds, seed)
	half := time.Duration(seconds) * time.Second / 2
	for i, action := range []string{"Accept", "Drop"} {
		t.Run(action, func(t *testing.T) {
			newFuzzing(t, action, seed+uint64(i)).run(half)
		})
	}
}

// fuzzPolicies restrict m alone of the attackers, and isolate b and c but for two ports.
var fuzzPolicies = map[string]string{
	"evil/m": `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress, Egress],
  ingress: [{ports: [{port: 8000}, {port: 5000, protocol: UDP}]}],
  egress: [{to: [{namespaceSelector: {matchLabels: {team: shop}}}, {ipBlock: {cidr: 192.0.2.0/24}}, {ipBlock: {cidr: "2001:db8::/32"}},
      {ipBlock: {cidr: 10.66.0.1/32}}, {ipBlock: {cidr: "fd66::1/128"}}],
    ports: [{port: 53, protocol: UDP}, {port: 443}]}]}`,
	"b": `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress, Egress], ingress: [
  {from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]},
  {from: [{namespaceSelector: {matchLabels: {team: evil}}}], ports: [{port: 53, protocol: UDP}, {port: 443}]}]}`,
	"c": `{podSelector: {matchLabels: {app: c}}, policyTypes: [Ingress, Egress], ingress: [
  {from: [{namespaceSelector: {matchLabels: {team: evil}}}], ports: [{port: 53, protocol: UDP}]}]}`,
	"a": `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`,
}

var fuzzServices = map[netip.Addr]bool{netip.MustParseAddr("10.96.0.10"): false, netip.MustParseAddr("fd96::10"): true}

// fuzzing is one run: the scene, what judges arrivals, and those who send.
type fuzzing struct {
	*scene
	o        *lab.Pod // an attacker whom no policy restricts
	judge    *judge
	crafters []*crafter
	honest   honest

	mu         sync.Mutex
	violations map[string][][]byte // by where and what is wrong; the first few
	counts     map[string]int
}

func newFuzzing(t *testing.T, hostAction string, seed uint64) *fuzzing {
	t.Helper()
	f := &fuzzing{
		scene:      newScene(t, append(fuzzFlags, "--default-endpoint-to-host-action", hostAction)...),
		violations: map[string][][]byte{}, counts: map[string]int{},
	}
	f.o = f.Pod(f.n1, "evil/o")
	for name, spec := range fuzzPolicies {
		f.Policy(name, spec)
	}
	f.AwaitPolicies(f.m, 1, 1)
	f.AwaitPolicies(f.b, 1, 1)
	f.AwaitPolicies(f.c, 1, 1)
	f.AwaitPolicies(f.a, 1, 0)
	for vip, v6 := range fuzzServices {
		for i, to := range []netip.AddrPort{
			netip.AddrPortFrom(f.b.Addr(v6), 53), netip.AddrPortFrom(f.b.Addr(v6), 54), netip.AddrPortFrom(f.n2.Addr(v6), 4789),
			netip.AddrPortFrom(f.ext.Addr(v6), 9999), netip.AddrPortFrom(f.n1.Addr(v6), 53), netip.AddrPortFrom(f.c.Addr(v6), 443),
		} {
			name := fmt.Sprintf("s%d-%v", i, v6)
			f.service(name+"-udp", netip.AddrPortFrom(vip, uint16(1000+i)), "udp", to)
			f.service(name+"-tcp", netip.AddrPortFrom(vip, uint16(1000+i)), "tcp", to)
		}
	}
	f.judge = f.newJudge(f.m, f.o, f.e)
	f.judge.hostDrop = hostAction == "Drop"
	live := f.openFlows()
	for i, p := range []*lab.Pod{f.m, f.o, f.e} {
		f.crafters = append(f.crafters, f.newCrafter(p, token(i+1), seed, live))
	}
	f.watchAll()
	return f
}

func (f *fuzzing) newCrafter(p *lab.Pod, tag token, seed uint64, live []testutil.Packet) *crafter {
	r := &crafter{
		Rand: rand.New(rand.NewPCG(seed, uint64(tag))), pod: p, tag: tag, live: live,
		ports: []uint16{22, 53, 53, 53, 54, 80, 179, 443, 443, 1000, 1001, 1002, 1003, 1004, 1005, 4789, 5000, 6081, 8000, 8000, 8472},
	}
	for i, v6 := range []bool{false, true} {
		for _, h := range []*lab.Host{f.a.Host, f.b.Host, f.c.Host, f.m.Host, f.o.Host, f.e.Host, f.n1.Host, f.n2.Host, f.ext.Host} {
			r.addrs[i] = append(r.addrs[i], h.Addr(v6), f.b.Addr(v6), f.ext.Addr(v6))
		}
		r.addrs[i] = append(r.addrs[i], zero(v6), loopback(v6))
	}
	for vip, v6 := range fuzzServices {
		r.addrs[family(v6)] = append(r.addrs[family(v6)], vip, vip, vip)
	}
	for _, text := range []string{
		"255.255.255.255", "224.0.0.1", "239.1.2.3", "10.66.0.255", "10.65.1.255", "169.254.1.1", "10.65.1.200", "8.8.8.8",
		"ff02::1", "ff02::2", "ff02::16", "ff05::1", "ff0e::1", "fe80::ecee:eeff:feee:eeee", "::ffff:10.65.1.3", "fd65:0:0:1::200",
	} {
		a := netip.MustParseAddr(text)
		r.addrs[family(a.Is6())] = append(r.addrs[family(a.Is6())], a)
	}
	return r
}

// openFlows opens connections between everybody and attackers, and between others, and returns a packet of each.
func (f *fuzzing) openFlows() (live []testutil.Packet) {
	f.T.Helper()
	for _, p := range []*lab.Pod{f.m, f.o} { // no echo of datagrams: two echo servers would go on for ever
		if _, err := echo.ListenTCP(p.Host, 8000); err != nil {
			f.T.Fatal(err)
		}
	}
	for _, s := range []struct {
		host *lab.Host
		port uint16
	}{{f.b.Host, 443}, {f.b.Host, 53}, {f.b.Host, 80}, {f.ext.Host, 443}, {f.ext.Host, 80}} {
		f.Serve(s.host, s.port)
	}
	for _, c := range []struct {
		from, to *lab.Host
		port     uint16
		udp      bool
	}{
		{f.ext.Host, f.m.Host, 8000, false}, {f.ext.Host, f.m.Host, 5000, true}, {f.a.Host, f.m.Host, 8000, false},
		{f.n1.Host, f.m.Host, 8000, false}, {f.n1.Host, f.o.Host, 8000, false}, {f.m.Host, f.b.Host, 443, false},
		{f.m.Host, f.b.Host, 53, true}, {f.m.Host, f.ext.Host, 443, false}, {f.a.Host, f.b.Host, 80, false},
		{f.a.Host, f.b.Host, 80, true}, {f.a.Host, f.ext.Host, 80, false},
	} {
		for _, v6 := range []bool{false, true} {
			live = append(live, f.openFlow(c.from, netip.AddrPortFrom(c.to.Addr(v6), c.port), c.udp))
		}
	}
	return live
}

func (f *fuzzing) openFlow(from *lab.Host, to netip.AddrPort, udp bool) testutil.Packet {
	f.T.Helper()
	var conn net.Conn
	var err error
	if udp {
		conn, err = traffic.OpenUDP(from, to)
	} else {
		conn, err = traffic.OpenTCP(from, to, soon)
	}
	if err != nil {
		f.T.Fatal(err)
	}
	at := local(conn)
	p := testutil.Packet{Src: at.Addr(), Dst: to.Addr()}
	opening := model.Packet{Src: p.Src, Dst: p.Dst, Protocol: testutil.ProtoTCP, SrcPort: at.Port(), DstPort: to.Port()}
	p.L4 = testutil.TCP{SrcPort: at.Port(), DstPort: to.Port()}
	if udp {
		opening.Protocol, p.L4 = testutil.ProtoUDP, testutil.UDP{SrcPort: at.Port(), DstPort: to.Port()}
		if _, err := conn.Write([]byte("hello")); err != nil {
			f.T.Fatal(err)
		}
	}
	f.judge.expect(opening)
	return p
}

func local(c net.Conn) netip.AddrPort {
	a := netip.MustParseAddrPort(c.LocalAddr().String())
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// watchAll has everything that arrives at those who are no attackers judged.
func (f *fuzzing) watchAll() {
	f.T.Helper()
	for _, h := range []*lab.Host{f.a.Host, f.b.Host, f.c.Host, f.ext.Host} {
		at := &place{name: h.Name(), addrs: h.Addrs()}
		if h != f.ext.Host {
			pod := id(f.podOf(h))
			at.pod = &pod
		}
		tap, err := traffic.OpenTap(h, "eth0", func(frame []byte, forHost bool) { f.frame(at, frame, forHost) })
		if err != nil {
			f.T.Fatal(err)
		}
		f.T.Cleanup(func() {
			if n := tap.Lost(); n > 0 {
				f.T.Errorf("%d frames that arrived at %s were not judged", n, at.name)
			}
			tap.Close() // fails only if the lab has closed it
		})
	}
	for _, n := range []*lab.Node{f.n1, f.n2} {
		at := &place{name: n.Name(), addrs: n.Addrs(), node: n}
		f.listen(n, func(packet []byte) { f.note(at, packet, f.judge.arrived(at, packet)) })
	}
}

func (f *fuzzing) podOf(h *lab.Host) *lab.Pod {
	for _, p := range []*lab.Pod{f.a, f.b, f.c} {
		if p.Host == h {
			return p
		}
	}
	return nil
}

func (f *fuzzing) frame(at *place, frame []byte, forHost bool) {
	if !forHost && at.pod == nil {
		return // what the segment floods is somebody else's
	}
	ether := uint16(frame[12])<<8 | uint16(frame[13])
	if ether == testutil.EtherIPv4 || ether == testutil.EtherIPv6 {
		f.note(at, frame, f.judge.arrived(at, frame[14:]))
	} else if len(tokensIn(frame)) > 0 {
		f.note(at, frame, fmt.Sprintf("it is a frame of EtherType %#04x", ether))
	}
}

func (f *fuzzing) note(at *place, packet []byte, wrong string) {
	if wrong == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	kind := at.name + ": " + wrong
	if f.counts[kind]++; f.counts[kind] <= fuzzShown {
		f.violations[kind] = append(f.violations[kind], append([]byte(nil), packet...))
	}
}

// run attacks for a time and then demands what has to be true.
func (f *fuzzing) run(d time.Duration) {
	f.T.Helper()
	f.honest = f.startHonest()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	var sending sync.WaitGroup
	for _, r := range f.crafters {
		sender, err := traffic.OpenFrameSender(r.pod.Host, "eth0")
		if err != nil {
			f.T.Fatal(err)
		}
		sending.Go(func() {
			if err := attackUntil(ctx, r, sender, f.judge.sent); err != nil {
				f.T.Error(err)
			}
		})
	}
	f.overseeUntil(ctx)
	sending.Wait()
	f.honest.stop(f.T)
	f.arriveHonestly()
	f.report()
}

// attackUntil sends bursts until ctx ends, and calls before with each frame.
func attackUntil(ctx context.Context, r *crafter, sender *traffic.FrameSender, before func(frame []byte)) error {
	tick := time.NewTicker(fuzzPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var frames [][]byte
		for range fuzzBurst {
			frames = append(frames, r.frames()...)
		}
		for _, frame := range frames {
			before(frame)
		}
		if err := sender.Send(frames); err != nil {
			return err
		}
	}
}

// arriveHonestly sends to everybody what is allowed: it still arrives, and is found to.
func (f *fuzzing) arriveHonestly() {
	f.T.Helper()
	for _, to := range []*lab.Host{f.b.Host, f.c.Host, f.ext.Host} {
		for i, v6 := range []bool{false, true} {
			before := f.judge.admitted(to.Name())
			p := f.from(f.m, to, v6, testutil.UDP{SrcPort: uint16(700 + i), DstPort: 53})
			send(f.T, f.m, bearing(f.m, p)(f.crafters[0].mark("allowed"))...)
			testutil.WaitFor(f.T, soon, "what is allowed to arrive at "+to.Name(), func() bool { return f.judge.admitted(to.Name()) > before })
		}
	}
}

func (f *fuzzing) report() {
	f.T.Helper()
	f.judge.mu.Lock()
	defer f.judge.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for kind, n := range f.counts {
		f.T.Errorf("%d packets arrived that may not: at %s", n, kind)
		for _, packet := range f.violations[kind] {
			f.T.Errorf("for example, %s: %x", f.origin(packet), packet)
		}
	}
	sent := token(0)
	for _, r := range f.crafters {
		sent += r.seq
	}
	f.T.Logf("%d packets and groups of fragments were sent; admitted packets arrived: %v", sent, f.judge.fair)
}

// origin says who sent a packet, as what.
func (f *fuzzing) origin(packet []byte) string {
	for _, k := range tokensIn(packet) {
		for _, r := range f.crafters {
			if k>>56 == r.tag {
				return r.pod.Name() + " sent it, " + r.kindOf(k)
			}
		}
	}
	return "without a token"
}

// fuzzFlags are those of agents under attack: their flow tables are new, and are to be taken as complete.
var fuzzFlags = []string{"--mid-flow-grace", "0s"}
