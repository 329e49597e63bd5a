package chains_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

func (w *world) service(address string, port uint16, to *lab.Host) netip.AddrPort {
	w.t.Helper()
	at := netip.AddrPortFrom(netip.MustParseAddr(address), port)
	if err := w.node.SetService(lab.Service{Addr: at, Protocol: "tcp", Backends: []netip.AddrPort{netip.AddrPortFrom(w.addr(to), 8080)}}); err != nil {
		w.t.Fatal(err)
	}
	return at
}

func (w *world) dial(what string, from *lab.Host, to netip.AddrPort, want echo.Outcome) {
	w.t.Helper()
	if got := echo.DialTCP(from, to, within(want)); got.Outcome != want {
		w.t.Errorf("%s: %v, want %v (%v)", what, got.Outcome, want, got.Err)
	}
}

// services: what is translated is judged on the backend; a pod always reaches itself (D-16); what this node masquerades comes from
// the node.
func (w *world) services() {
	toB, toX := "10.96.0.1", "10.96.0.2"
	if w.family == 6 {
		toB, toX = "fd96::1", "fd96::2"
	}
	b, x := w.service(toB, 80, w.b.Host), w.service(toX, 80, w.x.Host)
	w.dial("service", w.a.Host, b, echo.Connected)
	w.dial("service beyond the node", w.b.Host, x, echo.Connected)
	w.change(func() { w.ingress[w.b] = shutIngress })
	w.dial("service, denied at its backend", w.a.Host, b, echo.Timeout)
	w.dial("to itself, ingress denied", w.b.Host, b, echo.Connected)
	w.change(func() { w.egress[w.b] = closedEgress })
	w.dial("to itself, all denied", w.b.Host, b, echo.Connected)
	w.dial("service beyond the node, denied", w.b.Host, x, echo.Timeout)
	w.change(func() { w.ingress[w.b], w.egress[w.b] = guarded, openEgress })
	s := must(echo.StartStream(w.a.Host, b, echo.StreamOptions{Timeout: late}))(w.t)
	w.change(func() { w.ingress[w.b] = shutIngress })
	w.reset("a live flow by a service that is revoked", s)
	w.change(func() { w.ingress[w.b] = guarded })

	if err := w.x.RouteVia(netip.PrefixFrom(b.Addr(), b.Addr().BitLen()), w.node); err != nil {
		w.t.Fatal(err)
	}
	w.dial("masqueraded, and the node is denied", w.x.Host, b, echo.Timeout)
	w.change(func() { w.config.Masquerade.Class = classOfA })
	w.dial("masqueraded, and the node is allowed", w.x.Host, b, echo.Connected)
	s = must(echo.StartStream(w.x.Host, b, echo.StreamOptions{Timeout: late}))(w.t)
	for range 3 {
		w.change(func() {})
		w.exchanges(s)
	}
	if r := s.Stop(); r.Errors != 0 || r.Connects != 1 {
		w.t.Errorf("a masqueraded flow that is judged again: %+v", r)
	}
	w.tcp("not masqueraded", w.x.Host, w.b.Host, 8080, echo.Timeout)
	s = must(echo.StartStream(w.x.Host, b, echo.StreamOptions{Timeout: late}))(w.t)
	w.change(func() { w.config.Masquerade.Class = classOfX })
	w.reset("a masqueraded flow that is revoked", s)
}

// untracked: each packet is judged by itself, as what opens a flow.
func (w *world) untracked() {
	w.others = true
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		for _, protocol := range []string{"udp", "tcp"} {
			w.run("", w.command(""), "-t", "raw", "-A", chain, "-p", protocol, "-j", "CT", "--notrack")
		}
	}
	w.change(func() {})
	w.tcp("untracked TCP, allowed", w.a.Host, w.b.Host, 8080, echo.Connected)
	w.tcp("untracked TCP, denied", w.x.Host, w.b.Host, 8080, echo.Timeout)
	w.udp("untracked, the answer allowed", w.a.Host, w.b.Host, 8081, echo.Connected)
	w.change(func() { w.egress[w.b] = closedEgress })
	w.udp("untracked, the answer denied", w.a.Host, w.b.Host, 8081, echo.Timeout)
	w.udp("untracked, denied", w.x.Host, w.b.Host, 8081, echo.Timeout)
	w.untrackedEvents()
	w.others = false
	w.change(func() { w.egress[w.b], w.config.Events = openEgress, chains.Events{} })
}

// untrackedEvents: a denied packet that has no connection is copied as denied, whether conntrack does not track it or finds it invalid.
func (w *world) untrackedEvents() {
	a, b := w.addr(w.a.Host), w.addr(w.b.Host)
	for what, packet := range map[string][]byte{
		"untracked datagram":         w.packet(a, b, testutil.UDP{SrcPort: 1, DstPort: 9}),
		"untracked TCP":              w.packet(a, b, testutil.TCP{SrcPort: 1, DstPort: 9, Flags: testutil.SYN}),
		"echo reply without request": w.packet(a, b, w.echoReply()),
	} {
		w.change(func() { w.config.Events = chains.Events{Group: 7, Rate: 100} }) // counters begin with 0
		if err := traffic.SendIP(w.a, packet); err != nil {
			w.t.Fatal(err)
		}
		testutil.WaitFor(w.t, late, what+" to be copied", func() bool { return w.copies(chains.EventDenied)+w.copies(chains.EventRevoked) > 0 })
		if n := w.copies(chains.EventRevoked); n > 0 {
			w.t.Errorf("%s: %d copies say that an earlier policy has allowed it", what, n)
		}
	}
}

// copies is the number of packets that the chain which denies has copied as events of a kind.
func (w *world) copies(kind chains.EventKind) (n int) {
	w.t.Helper()
	for line := range strings.Lines(w.run("", w.command("-save"), "-c", "-t", "mangle")) {
		var packets, bytes int
		if !strings.Contains(line, "-A "+w.o.Names.Chain("deny")+" ") || !strings.Contains(line, string(kind)+"-") {
			continue
		}
		if _, err := fmt.Sscanf(line, "[%d:%d]", &packets, &bytes); err != nil {
			w.t.Fatalf("counters of %q: %v", line, err)
		}
		n += packets
	}
	return n
}

// oddPackets: headers that no honest packet has.
func (w *world) oddPackets() {
	b, x := w.addr(w.b.Host), w.addr(w.x.Host)
	if w.family == 6 {
		routed := testutil.Packet{Src: b, Dst: x, L4: testutil.UDP{SrcPort: 9, DstPort: 5000}, Payload: make([]byte, 16)}
		for left, passes := range map[byte]bool{0: true, 1: false} {
			routed.Extensions = []testutil.Extension{{Header: 43, Body: append([]byte{4, left}, make([]byte, 20)...)}}
			routed.Payload = []byte(fmt.Sprintf("%d of a routing header", left))
			w.arrives(fmt.Sprintf("routing header with %d segments left", left), w.b, w.x.Host, routed.IP(), passes)
		}
		return
	}
	const ethernet = 14
	for id, port := range []uint16{5000, 4789} {
		whole := testutil.Packet{Src: b, Dst: x, ID: uint32(100 + id), L4: testutil.UDP{SrcPort: 9, DstPort: port}, Payload: []byte("a payload that takes several fragments, the last")}
		var fragments [][]byte
		for _, f := range whole.Fragments(24) {
			fragments = append(fragments, f[ethernet:])
		}
		w.arrives(fmt.Sprintf("fragments of a datagram to port %d", port), w.b, w.x.Host, whole.IP(), port != 4789, fragments...)
		w.arrives("later fragments alone", w.b, w.x.Host, whole.IP(), false, fragments[1:]...)
	}
}
