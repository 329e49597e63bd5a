package chains_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// furtherWorld is a world in which pods list further sources. The node routes the address routed to a, and stray to no pod.
type furtherWorld struct {
	*world
	routed, stray netip.Addr
	lists         map[*lab.Pod][]string
	owned         []netip.Addr
	payloads      int // so that each is another one
}

func newFurtherWorld(t *testing.T, b backend) *furtherWorld {
	w := &furtherWorld{world: newWorld(t, b), routed: netip.MustParseAddr("203.0.113.7"), stray: netip.MustParseAddr("203.0.113.9")}
	if b.family == 6 {
		w.routed, w.stray = netip.MustParseAddr("2001:db8:113::7"), netip.MustParseAddr("2001:db8:113::9")
	}
	one := netip.PrefixFrom(w.routed, w.routed.BitLen())
	w.on(w.a.Host, "ip", "addr", "add", one.String(), "dev", "lo")
	w.run("", "ip", "route", "add", one.String(), "via", w.addr(w.a.Host).String(), "dev", w.a.Iface(), "onlink")
	if err := w.x.RouteVia(one, w.node); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *furtherWorld) on(h *lab.Host, command ...string) {
	w.t.Helper()
	if out, err := h.Run(w.t.Context(), "", command[0], command[1:]...); err != nil {
		w.t.Fatal(err, out)
	}
}

// change makes the lists of pods, and what do changes, the ones in force.
func (w *furtherWorld) change(do func()) {
	w.t.Helper()
	do()
	sets := w.o.Names.Sets(w.family)
	var text strings.Builder
	fill := func(name string, add func()) {
		fmt.Fprintf(&text, "create %s hash:net family %s skbinfo\nflush %s\n", name, w.inet(), name)
		add()
	}
	fill(sets.Owned, func() {
		for _, a := range w.owned {
			fmt.Fprintf(&text, "add %s %s\n", sets.Owned, a)
		}
	})
	w.config.Further.Sources = nil
	for number, p := range []*lab.Pod{w.a, w.b} {
		s := w.o.Names.Source(w.family, number+1, p.Iface())
		for name, slot := range map[string]uint32{s.Egress: w.egress[p], s.Ingress: w.ingress[p]} {
			fill(name, func() {
				for _, prefix := range w.lists[p] {
					fmt.Fprintf(&text, "add %s %s skbmark %v\n", name, prefix, must(w.o.Marks.Slot(slot))(w.t))
				}
			})
		}
		if len(w.lists[p]) > 0 {
			w.config.Further.Sources = append(w.config.Further.Sources, s)
		}
	}
	w.run(text.String(), "ipset", "restore", "-exist")
	w.world.change(func() {})
}

// everything are all addresses of the family, as sets have them.
func (w *furtherWorld) everything() []string {
	if w.family == 4 {
		return []string{"0.0.0.0/1", "128.0.0.0/1"}
	}
	return []string{"::/1", "8000::/1"}
}

func (w *furtherWorld) datagram(from, to netip.Addr, source, port uint16) []byte {
	w.t.Helper()
	return testutil.Packet{Src: from, Dst: to, L4: testutil.UDP{SrcPort: source, DstPort: port}, Payload: []byte(fmt.Sprintf("%v %v %016d", from, to, w.next()))}.IP()
}

func (w *furtherWorld) next() int { w.payloads++; return w.payloads }

func TestFurtherSourcesInTheKernel(t *testing.T) {
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			t.Parallel()
			w := newFurtherWorld(t, b)
			w.sent()
			w.notAnswers()
			w.notBeginners()
			w.noOpeners()
			w.noNeighbours()
			w.toTheNode()
			w.reachedAndRevoked()
		})
	}
}

// sent: from the listed prefixes only, from no address with an owner, and by the pod's egress policy.
func (w *furtherWorld) sent() {
	x := w.addr(w.x.Host)
	from := func(what string, p *lab.Pod, src netip.Addr, want bool) {
		w.t.Helper()
		w.arrives(what, p, w.x.Host, w.datagram(src, x, 1000, 5000), want)
	}
	from("nothing is listed", w.a, w.stray, false)
	w.change(func() {
		w.lists = map[*lab.Pod][]string{w.a: append(w.everything(), w.stray.String())}
		w.owned = []netip.Addr{w.addr(w.b.Host), w.stray.Next()}
	})
	from("a listed address", w.a, w.stray, true)
	from("one that is routed to the pod", w.a, w.routed, true)
	from("the pod's own", w.a, w.addr(w.a.Host), true)
	from("of a pod that lists nothing", w.b, w.stray, false)
	from("another pod's address", w.a, w.addr(w.b.Host), false)
	from("an address with an owner elsewhere", w.a, w.stray.Next(), false)
	never := []string{"0.1.2.3", "127.0.0.1", "169.254.1.1", "224.0.0.1", "240.0.0.1"}
	if w.family == 6 {
		never = []string{"::5", "::ffff:192.0.2.1", "fe80::5", "ff02::5"}
	}
	for _, a := range never {
		from("an address that is never a further source", w.a, netip.MustParseAddr(a), false)
	}
	w.change(func() { w.lists[w.b] = []string{w.stray.String()} })
	from("listed by a, too, with a shorter prefix beside it", w.b, w.stray, true)
	from("a still has it", w.a, w.stray, true)
	from("a still has the rest", w.a, w.stray.Prev(), true)
	from("b has no more", w.b, w.stray.Prev(), false)
	w.change(func() { w.egress[w.a] = closedEgress })
	from("egress denied", w.a, w.stray, false)
	from("egress denied, routed to the pod", w.a, w.routed, false)
	w.arrives("egress denied, TCP in mid-flow", w.a, w.x.Host,
		w.packet(w.stray, x, testutil.TCP{SrcPort: 1, DstPort: 5000, Flags: testutil.ACK, Seq: 1, Ack: 1}), false)
	w.change(func() { w.egress[w.a] = openEgress; delete(w.lists, w.b) })
}

// notAnswers: a pod that poses as x is no part of the flow that b has with x, and does not end it.
func (w *furtherWorld) notAnswers() {
	b, x := w.addr(w.b.Host), w.addr(w.x.Host)
	must(echo.ListenTCP(w.x.Host, 8080))(w.t)
	stream := must(echo.StartStream(w.b.Host, netip.AddrPortFrom(x, 8080), echo.StreamOptions{Timeout: late}))(w.t)
	w.arrives("a flow of b", w.b, w.x.Host, w.datagram(b, x, 3000, 53), true)
	w.arrives("its answer", w.a, w.b.Host, w.datagram(x, b, 53, 3000), false) // b's ingress denies it
	w.change(func() { w.ingress[w.b] = openIngress })
	w.arrives("another flow of b", w.b, w.x.Host, w.datagram(b, x, 3001, 53), true)
	w.arrives("its answer, as what a may send", w.a, w.b.Host, w.datagram(x, b, 53, 3001), true)
	w.change(func() { w.egress[w.a] = closedEgress })
	w.arrives("a third flow of b", w.b, w.x.Host, w.datagram(b, x, 3002, 53), true)
	w.arrives("its answer, by a that may send nothing", w.a, w.b.Host, w.datagram(x, b, 53, 3002), false)
	for _, flags := range []uint8{testutil.ACK, testutil.ACK | testutil.RST, testutil.SYN} {
		w.arrives("TCP in the name of x", w.a, w.b.Host, w.packet(x, b, testutil.TCP{SrcPort: 8080, DstPort: 3003, Flags: flags, Seq: 1, Ack: 1}), false)
	}
	live := w.portTo(netip.AddrPortFrom(x, 8080), b)
	w.arrives("TCP of the connection that b has with x", w.a, w.b.Host, w.packet(x, b, testutil.TCP{SrcPort: 8080, DstPort: live, Flags: testutil.ACK, Seq: 1, Ack: 1}), false)
	w.arrives("the flow goes on", w.b, w.x.Host, w.datagram(b, x, 3002, 53), true)
	if r := stream.Stop(); r.Errors != 0 || r.Connects != 1 {
		w.t.Errorf("a flow of b with x while a poses as x: %+v", r)
	}
	w.change(func() { w.egress[w.a], w.ingress[w.b] = openEgress, guarded })
}

// notBeginners: a poses as x in a connection that x has with b, and that has no judgement yet. b answers x still, although it may open
// nothing: the connection is not one that a has begun.
func (w *furtherWorld) notBeginners() {
	b, x := w.addr(w.b.Host), w.addr(w.x.Host)
	must(echo.ListenUDP(w.b.Host, 5004))(w.t)
	w.change(func() { w.ingress[w.b] = openIngress })
	if got := echo.ExchangeUDPFrom(w.x.Host, netip.AddrPortFrom(x, 4004), netip.AddrPortFrom(b, 5004), []byte("x"), late); got.Outcome != echo.Connected {
		w.t.Fatalf("b does not answer x: %v", got)
	}
	w.change(func() { w.egress[w.b] = closedEgress })
	forgotten := must(w.forget(x))(w.t)
	if forgotten == 0 {
		w.t.Fatal("no connection with x has a judgement: the test tests nothing")
	}
	w.arrives("a as x, in a connection without a judgement", w.a, w.b.Host, w.datagram(x, b, 4004, 5004), true)
	w.arrives("b's answer to x", w.b, w.x.Host, w.datagram(b, x, 5004, 4004), true)
	w.change(func() { w.egress[w.b], w.ingress[w.b] = openEgress, guarded })
}

// forget clears the marks of connections that were opened from an address.
func (w *furtherWorld) forget(opener netip.Addr) (cleared int, err error) {
	return w.remark(func(e conntrack.Entry) (uint32, bool) { return 0, e.Original.Src == opener && e.Mark != 0 })
}

// portTo is the port of the connection that an address has with a server.
func (w *furtherWorld) portTo(server netip.AddrPort, from netip.Addr) (port uint16) {
	w.t.Helper()
	found := 0
	_, err := w.remark(func(e conntrack.Entry) (uint32, bool) {
		if o := e.Original; o.Src == from && o.Dst == server.Addr() && o.DstPort == server.Port() {
			port, found = o.SrcPort, found+1
		}
		return 0, false
	})
	if err != nil || found != 1 {
		w.t.Fatalf("%d connections of %v with %v, want one: %v", found, from, server, err)
	}
	return port
}

// remark changes the marks of connections, as Conn.Remark does.
func (w *furtherWorld) remark(decide func(conntrack.Entry) (uint32, bool)) (written int, err error) {
	family := conntrack.IPv4
	if w.family == 6 {
		family = conntrack.IPv6
	}
	err = w.node.Do(func() error {
		c, err := conntrack.Open()
		if err != nil {
			return err
		}
		written, err = c.Remark(family, conntrack.Filter{}, w.o.Marks.Mask(), decide)
		return errors.Join(err, c.Close())
	})
	return written, err
}

// noOpeners: b lists the address that is routed to a. Its packets from there open nothing for a.
func (w *furtherWorld) noOpeners() {
	x := w.addr(w.x.Host)
	w.change(func() {
		w.lists[w.b] = []string{w.routed.String()}
		w.ingress[w.a] = shutIngress
	})
	w.arrives("b as the address of a", w.b, w.x.Host, w.datagram(w.routed, x, 8080, 5002), true)
	c := must(traffic.OpenCapture(w.a.Host, "eth0"))(w.t)
	defer c.Close()
	got := echo.ExchangeUDPFrom(w.x.Host, netip.AddrPortFrom(x, 5002), netip.AddrPortFrom(w.routed, 8080), []byte("no answer, since a has asked nothing"), soon)
	if seen, err := c.Wait(soonContext(w.t), func(f []byte) bool { return strings.Contains(string(f), "since a has asked") }); err == nil {
		w.t.Errorf("x reaches a, whose ingress is shut, after b has sent from an address of a: %v, %d bytes", got, len(seen))
	}
	w.change(func() { w.ingress[w.a] = openIngress; delete(w.lists, w.b) })
}

// noNeighbours: a further source is no address for neighbour discovery.
func (w *furtherWorld) noNeighbours() {
	if w.family == 4 {
		return
	}
	before := w.dropped(chains.DropsSpoofed)
	solicitation := testutil.Packet{Src: w.stray, Dst: netip.MustParseAddr("ff02::1"), L4: testutil.ICMP{Type: 135}, Payload: make([]byte, 16)}.IP()
	if err := traffic.SendIP(w.a, solicitation); err != nil {
		w.t.Fatal(err)
	}
	testutil.WaitFor(w.t, late, "a solicitation from a further source to be dropped as spoofed", func() bool { return w.dropped(chains.DropsSpoofed) > before })
}

// toTheNode: a is no answer to what the node has asked of x.
func (w *furtherWorld) toTheNode() {
	n, x := w.addr(w.node.Host), w.addr(w.x.Host)
	echo.ListenUDPAt(w.x.Host, x, 8081)
	must(echo.ListenTCP(w.node.Host, 8085))(w.t)
	w.change(func() { w.egress[w.a] = closedEgress })
	if got := echo.ExchangeUDPFrom(w.node.Host, netip.AddrPortFrom(n, 5301), netip.AddrPortFrom(x, 8081), []byte("x"), late); got.Outcome != echo.Connected {
		w.t.Fatalf("the node has no answer: %v", got)
	}
	before := w.dropped("deny")
	if err := traffic.SendIP(w.a, w.datagram(x, n, 8081, 5301)); err != nil {
		w.t.Fatal(err)
	}
	testutil.WaitFor(w.t, late, "an answer to the node in the name of x to be denied", func() bool { return w.dropped("deny") > before })
	w.change(func() { w.egress[w.a] = openEgress })
	dial := func(what string, want echo.Outcome) {
		w.t.Helper()
		if got := echo.DialTCPFrom(w.a.Host, netip.AddrPortFrom(w.routed, 0), netip.AddrPortFrom(n, 8085), within(want)); got.Outcome != want {
			w.t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	dial("from a further source to the node", echo.Connected)
	w.change(func() { w.config.DropToHost = true })
	dial("with host action Drop", echo.Timeout)
	w.change(func() { w.config.DropToHost = false })
}

// reachedAndRevoked: connections from and to the address that is routed to a, until it is listed no more.
func (w *furtherWorld) reachedAndRevoked() {
	x := w.addr(w.x.Host)
	must(echo.ListenTCP(w.a.Host, 8086))(w.t)
	to := netip.AddrPortFrom(w.routed, 8086)
	w.dial("to a further source", w.x.Host, to, echo.Connected)
	w.dial("of the node to a further source", w.node.Host, to, echo.Connected)
	w.change(func() { w.egress[w.a] = closedEgress })
	w.dial("which answers, and may not send by itself", w.x.Host, to, echo.Connected)
	w.change(func() { w.egress[w.a], w.ingress[w.a] = openEgress, shutIngress })
	w.dial("ingress denied", w.x.Host, to, echo.Timeout)
	w.change(func() { w.ingress[w.a] = openIngress })
	if got := echo.DialTCPFrom(w.a.Host, netip.AddrPortFrom(w.routed, 0), netip.AddrPortFrom(x, 8080), late); got.Outcome != echo.Connected {
		w.t.Errorf("from a further source: %v", got)
	}
	live := must(echo.StartStream(w.x.Host, to, echo.StreamOptions{Timeout: late}))(w.t)
	w.change(func() {})
	before := live.Result().Received
	testutil.WaitFor(w.t, 4*late, "a live connection with a further source to go on when it is judged again", func() bool { return live.Result().Received > before+1 })
	if r := live.Result(); r.Errors != 0 {
		w.t.Errorf("a live connection with a further source, judged again: %+v", r)
	}
	w.change(func() { w.lists = nil })
	if err := w.broken(live); err == nil {
		w.t.Error("a live connection with an address that is listed no more goes on")
	}
	w.dial("listed no more", w.x.Host, to, echo.Timeout)
	w.dial("of the node, listed no more", w.node.Host, to, echo.Timeout)
}

// dropped is the number of packets that rules of a chain with the target DROP have counted.
func (w *furtherWorld) dropped(chain string) (n int) {
	w.t.Helper()
	table := "mangle"
	if chain == chains.DropsSpoofed { // nothing spoofed gets beyond
		table = "raw"
	}
	for line := range strings.Lines(w.run("", w.command(""), "-t", table, "-L", w.o.Names.Chain(chain), "-v", "-n", "-x")) {
		if words := strings.Fields(line); len(words) > 2 && words[2] == "DROP" {
			var packets int
			if _, err := fmt.Sscan(words[0], &packets); err != nil {
				w.t.Fatal(err)
			}
			n += packets
		}
	}
	return n
}

func soonContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	t.Cleanup(cancel)
	return ctx
}
