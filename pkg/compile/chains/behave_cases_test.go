package chains_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

func TestStaticChainsInTheKernel(t *testing.T) {
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			for _, h := range []*lab.Host{w.a.Host, w.b.Host, w.x.Host, w.node.Host} {
				for _, port := range []uint16{8080, 8082} {
					must(echo.ListenTCP(h, port))(t)
				}
				must(echo.ListenUDPAt(h, w.addr(h), 8081))(t)
			}
			w.newFlows()
			w.liveFlows()
			w.notReady()
			w.flushed()
			w.byPacket()
			w.midFlow()
			w.host()
			w.icmpErrors()
			w.services()
			w.untracked()
			w.oddPackets()
		})
	}
}

func isReset(err error) bool { return errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) }

// broken waits for the first error of a live flow. An exchange that begins now may wait for its answer as long as late.
func (w *world) broken(s *echo.Stream) error {
	defer s.Close()
	for end := time.Now().Add(2 * late); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if r := s.Result(); r.Errors > 0 {
			return r.LastErr
		}
	}
	return nil
}

// exchanges waits until an answer has come that was asked for under the chains as they are now: the first one may be of a request before.
func (w *world) exchanges(s *echo.Stream) {
	w.t.Helper()
	testutil.WaitForMore(w.t, late, "an answer on a live flow", 2, func() []uint64 { return []uint64{s.Result().Received} })
}

func (w *world) reset(what string, s *echo.Stream) {
	w.t.Helper()
	err := w.broken(s)
	if isReset(err) {
		return
	}
	// If the first packet judged was an answer, its sender was reset: who waits for the answer learns it from an agent only.
	if rejected := w.rejected(); err == nil || rejected == "0" {
		w.t.Errorf("%s: %v and %s packets rejected, want a reset", what, err, rejected)
	}
}

// rejected is the number of packets that table filter has answered with a reset since the chains were loaded.
func (w *world) rejected() string {
	w.t.Helper()
	list := w.run("", w.command(""), "-t", "filter", "-L", w.o.Names.Chain("unjudged"), "-v", "-n", "-x")
	for line := range strings.Lines(list) {
		if words := strings.Fields(line); len(words) > 2 && words[2] == "REJECT" {
			return words[0]
		}
	}
	return "0"
}

func (w *world) newFlows() {
	w.tcp("allowed port", w.a.Host, w.b.Host, 8080, echo.Connected)
	w.tcp("other port", w.a.Host, w.b.Host, 8082, echo.Timeout)
	w.tcp("from elsewhere", w.x.Host, w.b.Host, 8080, echo.Timeout)
	w.udp("allowed port, UDP", w.a.Host, w.b.Host, 8081, echo.Connected)
	w.tcp("pod to elsewhere", w.b.Host, w.x.Host, 8080, echo.Connected)
	w.tcp("from elsewhere to an open pod", w.x.Host, w.a.Host, 8080, echo.Connected)
	w.change(func() { w.egress[w.a] = closedEgress })
	w.tcp("egress denied", w.a.Host, w.b.Host, 8080, echo.Timeout)
	w.change(func() { w.egress[w.a] = openEgress })
}

func (w *world) liveFlows() {
	start := func() *echo.Stream {
		return must(echo.StartStream(w.a.Host, netip.AddrPortFrom(w.addr(w.b.Host), 8080), echo.StreamOptions{Timeout: late / 2}))(w.t)
	}
	s := start()
	for range 3 {
		w.change(func() {})
		w.exchanges(s)
	}
	if r := s.Stop(); r.Errors != 0 || r.Connects != 1 {
		w.t.Errorf("a live flow under three changes that still allow it: %+v", r)
	}
	s = start()
	w.change(func() { w.ingress[w.b] = shutIngress })
	w.reset("a live flow that is revoked", s)
	w.change(func() { w.ingress[w.b] = guarded })
	s = start()
	w.run("", w.command(""), "-t", "filter", "-F", "FORWARD")
	w.ingress[w.b] = shutIngress
	w.config.Generation++
	w.fillSets()
	w.loadTables("mangle")
	if err := w.broken(s); err == nil || isReset(err) {
		w.t.Errorf("a live flow that is revoked while nothing resets it: %v", err)
	}
	w.udp("revoked, UDP", w.a.Host, w.b.Host, 8081, echo.Timeout)
	w.change(func() { w.ingress[w.b] = guarded })
	w.udp("allowed again, UDP", w.a.Host, w.b.Host, 8081, echo.Connected)
}

func (w *world) notReady() {
	w.change(func() { delete(w.ingress, w.b) })
	w.tcp("no ingress slot", w.a.Host, w.b.Host, 8080, echo.Timeout)
	w.tcp("no ingress slot, from elsewhere", w.x.Host, w.b.Host, 8080, echo.Timeout)
	w.change(func() { w.ingress[w.b] = guarded; delete(w.egress, w.a) })
	w.tcp("no egress slot", w.a.Host, w.b.Host, 8080, echo.Timeout)
	w.change(func() { w.egress[w.a] = openEgress; w.ready[w.a] = false })
	w.tcp("not ready", w.a.Host, w.b.Host, 8080, echo.Timeout)
	w.tcp("node to a pod that is not ready", w.node.Host, w.a.Host, 8080, echo.Timeout)
	w.change(func() { w.ready[w.a] = true })
	w.tcp("ready again", w.a.Host, w.b.Host, 8080, echo.Connected)
	w.run("", "ipset", "flush", w.o.Names.Sets(w.family).Class)
	w.tcp("somebody has flushed the classes", w.a.Host, w.b.Host, 8080, echo.Timeout)
	w.fillSets()
	for _, name := range []string{w.slots[2].Name(), w.o.Names.Chain("ok"), w.o.Names.Chain("in"), w.o.Names.Chain("class-in")} {
		w.run("", w.command(""), "-t", "mangle", "-F", name)
		w.tcp("somebody has flushed "+name, w.a.Host, w.b.Host, 8080, echo.Timeout)
		w.load()
	}
	w.run("", w.command(""), "-t", "mangle", "-F", w.o.Names.Chain("deny"))
	w.tcp("somebody has flushed the chain that denies", w.x.Host, w.b.Host, 8080, echo.Timeout)
	w.load()
}

func (w *world) byPacket() {
	a, b, x := w.addr(w.a.Host), w.addr(w.b.Host), w.addr(w.x.Host)
	w.arrives("datagram", w.b, w.x.Host, w.packet(b, x, testutil.UDP{SrcPort: 1, DstPort: 5000}), true)
	w.arrives("spoofed", w.b, w.x.Host, w.packet(a, x, testutil.UDP{SrcPort: 1, DstPort: 5000}), false)
	w.arrives("VXLAN", w.b, w.x.Host, w.packet(b, x, testutil.UDP{SrcPort: 1, DstPort: 4789}), false)
	for _, p := range []uint8{4, 41, 47} {
		w.arrives("tunnel", w.b, w.x.Host, w.packet(b, x, testutil.Raw(p)), false)
	}
	w.arrives("another protocol", w.b, w.x.Host, w.packet(b, x, testutil.Raw(99)), true)
	w.change(func() { w.config.AllowEncap = true })
	w.arrives("VXLAN, allowed", w.b, w.x.Host, w.packet(b, x, testutil.UDP{SrcPort: 2, DstPort: 4789}), true)
	w.change(func() { w.config.AllowEncap = false })
	w.arrives("absurd flags", w.b, w.x.Host, w.packet(b, x, testutil.TCP{SrcPort: 1, DstPort: 5000, Flags: testutil.SYN | testutil.FIN}), false)
	w.arrives("echo reply without request, allowed as what it is", w.b, w.x.Host, w.packet(b, x, w.echoReply()), true)
	w.arrives("echo reply without request", w.a, w.b.Host, w.packet(a, b, w.echoReply()), false)
}

func (w *world) echoReply() testutil.ICMP {
	if w.family == 4 {
		return testutil.ICMP{Type: 0, ID: 77}
	}
	return testutil.ICMP{Type: 129, ID: 77}
}

func (w *world) midFlow() {
	a, b := w.addr(w.a.Host), w.addr(w.b.Host)
	port := uint16(20000)
	forth := func(what string, want bool) {
		w.t.Helper()
		port++
		w.arrives(what, w.a, w.b.Host, w.packet(a, b, testutil.TCP{SrcPort: port, DstPort: 8080, Flags: testutil.ACK, Seq: 1, Ack: 1}), want)
	}
	back := func(what string, want bool) {
		w.t.Helper()
		port++
		w.arrives(what, w.b, w.a.Host, w.packet(b, a, testutil.TCP{SrcPort: 8080, DstPort: port, Flags: testutil.ACK, Seq: 1, Ack: 1}), want)
	}
	w.change(func() { w.egress[w.b] = closedEgress })
	forth("mid-flow, judge", true)
	back("mid-flow, judge, an answer", false)
	w.change(func() { w.config.MidFlow = chains.MidFlowAnswer })
	forth("mid-flow, answer", true)
	back("mid-flow, answer, an answer", true)
	w.change(func() { w.ingress[w.b] = shutIngress })
	forth("mid-flow, answer, denied", false)
	back("mid-flow, answer, an answer that is denied", false)
	w.change(func() { w.config.MidFlow, w.ingress[w.b] = chains.MidFlowStrict, guarded })
	forth("mid-flow, strict", false)
	back("mid-flow, strict, an answer", false)
	w.change(func() { w.config.MidFlow, w.egress[w.b] = chains.MidFlowJudge, openEgress })
}

func (w *world) host() {
	w.tcp("pod to node", w.a.Host, w.node.Host, 8080, echo.Connected)
	w.tcp("node to pod", w.node.Host, w.b.Host, 8082, echo.Connected)
	w.change(func() { w.egress[w.a] = closedEgress })
	w.tcp("pod to node, denied", w.a.Host, w.node.Host, 8080, echo.Timeout)
	w.tcp("node to pod whose egress is denied", w.node.Host, w.a.Host, 8080, echo.Connected)
	w.change(func() { w.egress[w.a] = openEgress })
	s := must(echo.StartStream(w.a.Host, netip.AddrPortFrom(w.addr(w.node.Host), 8080), echo.StreamOptions{Timeout: late / 2}))(w.t)
	w.change(func() { w.config.DropToHost = true })
	if err := w.broken(s); err == nil || isReset(err) {
		w.t.Errorf("a live flow to a node that is closed: %v", err)
	}
	w.tcp("pod to node, host action Drop", w.a.Host, w.node.Host, 8080, echo.Timeout)
	w.tcp("node to pod, host action Drop", w.node.Host, w.b.Host, 8082, echo.Connected)
	w.change(func() { w.config.DropToHost = false })
	s = must(echo.StartStream(w.a.Host, netip.AddrPortFrom(w.addr(w.node.Host), 8080), echo.StreamOptions{Timeout: late / 2}))(w.t)
	w.change(func() { w.egress[w.a] = closedEgress })
	w.reset("a live flow to the node that is revoked", s)
	w.change(func() { w.egress[w.a] = openEgress })
}

// icmpErrors: who is no end of a flow says nothing about it, whatever policy allows to open.
func (w *world) icmpErrors() {
	a, b, x := w.addr(w.a.Host), w.addr(w.b.Host), w.addr(w.x.Host)
	quoted := testutil.Packet{Src: a, Dst: x, L4: testutil.UDP{SrcPort: 3000, DstPort: 8081}, Payload: []byte("x")}
	w.arrives("datagram", w.a, w.x.Host, testutil.Packet{Src: a, Dst: x, L4: testutil.UDP{SrcPort: 3000, DstPort: 8081}, Payload: make([]byte, 16)}.IP(), true)
	about := func(quoted testutil.Packet) testutil.ICMP {
		if w.family == 4 {
			return testutil.ICMP{Type: 3, Code: 3, Quote: testutil.Quoting(quoted)}
		}
		return testutil.ICMP{Type: 1, Code: 4, Quote: testutil.Quoting(quoted)}
	}
	w.arrives("error by somebody else", w.b, w.a.Host, w.packet(b, a, about(quoted)), false)
	forged := testutil.Packet{Src: x, Dst: b, L4: testutil.UDP{SrcPort: 3000, DstPort: 1}}
	w.arrives("error to who has not sent it", w.b, w.a.Host, w.packet(b, a, about(forged)), false)
	// The end of a flow speaks of it, though policy allows it nothing.
	w.udp("a flow", w.a.Host, w.b.Host, 8081, echo.Connected)
	flow := testutil.Packet{Src: a, Dst: b, L4: testutil.UDP{SrcPort: 3001, DstPort: 8081}, Payload: make([]byte, 16)}
	w.arrives("datagram", w.a, w.b.Host, flow.IP(), true)
	w.arrives("error by the end of the flow", w.b, w.a.Host, w.packet(b, a, about(flow)), true)
	// An error about a flow that is to be judged again is judged as a message: b may send, and then it may not.
	w.change(func() {})
	w.arrives("error about an old flow, allowed as a message", w.b, w.a.Host, w.packet(b, a, about(flow)), true)
	w.change(func() { w.egress[w.b] = closedEgress })
	w.arrives("error about an old flow, denied as a message", w.b, w.a.Host, w.packet(b, a, about(flow)), false)
	w.arrives("the flow lives on", w.a, w.b.Host, flow.IP(), true)
	w.arrives("error about it passes again", w.b, w.a.Host, w.packet(b, a, about(flow)), true)
	w.change(func() { w.egress[w.b], w.ingress[w.b] = openEgress, shutIngress })
	w.arrives("error about a flow that is to be revoked, allowed as a message", w.b, w.a.Host, w.packet(b, a, about(flow)), true)
	w.arrives("which does not make the flow allowed", w.a, w.b.Host, flow.IP(), false)
	w.change(func() { w.ingress[w.b] = guarded })
}
