package chains_test

import (
	"net/netip"
	"strings"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// flushed: where somebody has packets pass by the chains in which they are judged, table filter drops those of flows that have not been
// judged. What has been allowed goes on.
func (w *world) flushed() {
	chain := w.o.Names.Chain
	for what, rules := range map[string]string{
		"FORWARD is flushed":                "-F FORWARD",
		"a rule before the jump accepts":    "-I FORWARD 1 -j ACCEPT",
		"the chain behind it is flushed":    "-F " + chain("FORWARD"),
		"the chain that denies accepts":     "-I " + chain("deny") + " 1 -j ACCEPT",
		"all of mangle is flushed":          "-F",
		"the chain of both ends is flushed": "-F " + chain("F"),
	} {
		w.change(func() {})
		live := must(echo.StartStream(w.a.Host, netip.AddrPortFrom(w.addr(w.b.Host), 8080), echo.StreamOptions{Timeout: late}))(w.t)
		w.udp(what+": before", w.a.Host, w.b.Host, 8081, echo.Connected)
		w.run("*mangle\n"+rules+"\nCOMMIT\n", w.command("-restore"), "--noflush")
		w.tcp(what+": from elsewhere, denied", w.x.Host, w.b.Host, 8080, echo.Timeout)
		w.tcp(what+": on the node, denied", w.a.Host, w.b.Host, 8082, echo.Timeout)
		w.udp(what+": datagram, denied", w.x.Host, w.b.Host, 8081, echo.Timeout)
		w.tcp(what+": node to pod", w.node.Host, w.b.Host, 8082, echo.Connected)
		b, x := w.addr(w.b.Host), w.addr(w.x.Host)
		w.arrives(what+": mid-flow", w.b, w.x.Host, w.packet(b, x, testutil.TCP{SrcPort: 1, DstPort: 5000, Flags: testutil.ACK, Seq: 1, Ack: 1}), strings.Contains(rules, "deny"))
		w.load()
		if r := live.Stop(); r.Errors != 0 || r.Connects != 1 {
			w.t.Errorf("%s: a live flow: %+v", what, r)
		}
	}
	w.change(func() { w.egress[w.a] = closedEgress })
	w.run("*mangle\n-F INPUT\nCOMMIT\n", w.command("-restore"), "--noflush")
	w.tcp("INPUT is flushed: pod to node, denied", w.a.Host, w.node.Host, 8080, echo.Timeout)
	w.tcp("INPUT is flushed: node to pod", w.node.Host, w.a.Host, 8080, echo.Connected)
	w.change(func() { w.egress[w.a], w.config.DropToHost = openEgress, true })
	w.run("*mangle\n-F INPUT\nCOMMIT\n", w.command("-restore"), "--noflush")
	w.tcp("INPUT is flushed, host action Drop: pod to node", w.a.Host, w.node.Host, 8080, echo.Timeout)
	w.tcp("INPUT is flushed, host action Drop: node to pod", w.node.Host, w.b.Host, 8082, echo.Connected)
	w.change(func() { w.config.DropToHost = false })
}
