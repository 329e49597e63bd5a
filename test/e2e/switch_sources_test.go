package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// onlyServed is the spec of a policy by which the pods may ask, and be asked, on these ports only. So each answer needs its flow.
const onlyServed = `{podSelector: {}, policyTypes: [Ingress, Egress],
	ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}, {port: 7000, endPort: 7099}, {port: 7000, endPort: 7099, protocol: UDP}]}],
	egress: [{ports: [{port: 80}, {port: 80, protocol: UDP}, {port: 7000, endPort: 7099}, {port: 7000, endPort: 7099, protocol: UDP}]}]}`

// Ports of flows whose ends are fixed: those of openers, and those of responders, which policy allows.
const (
	firstOpener, firstResponder = 6000, 7000
	portAnswers, portOneWay     = 7098, 7099 // of servers of datagrams, the latter for those from addresses elsewhere only
)

// sourceSwitch is a gateway whose dataplane is switched while it and others have flows at addresses that it lists. Its node routes
// some of these to it (gateway.behind), and others to the machine outside, which has them, too.
type sourceSwitch struct {
	*gateway
	elsewhere []netip.Addr // listed by the gateway, routed to the machine outside
	pairs     []talk
	streams   []*echo.Stream
	flows     []*traffic.UDPFlow // that get an answer to each datagram
	oneWay    []*traffic.UDPFlow // from the gateway, at addresses elsewhere
	arrived   *echo.Server       // where those go
	forged    []*traffic.UDPFlow // from the gateway, with the ends of answers to others
}

// talk is a flow that is quiet while the mode is switched.
type talk struct {
	what              string
	opener, responder net.Conn
}

func newSourceSwitch(t *testing.T) *sourceSwitch {
	s := &sourceSwitch{gateway: newGateway(t, "--workload-source-spoofing", "Any"),
		elsewhere: []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:113::9")}}
	s.list("203.0.113.0/24", "2001:db8:113::/48")
	s.Policy("all", onlyServed)
	s.AwaitPolicies(s.pod, 1, 1)
	s.AwaitPolicies(s.peer, 1, 1)
	for _, a := range s.elsewhere {
		s.ip(s.pod.Host, "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "lo", "nodad")
		if err := s.ext.AddAddr(a); err != nil {
			t.Fatal(err)
		}
		s.at(s.ext.Host, a, portAnswers)
	}
	for _, a := range s.behind {
		s.at(s.pod.Host, a, portAnswers)
	}
	s.arrived = s.at(s.peer.Host, netip.Addr{}, portOneWay)
	return s
}

// at starts a server of datagrams.
func (s *sourceSwitch) at(h *lab.Host, a netip.Addr, port uint16) *echo.Server {
	s.T.Helper()
	server, err := echo.ListenUDPAt(h, a, port)
	if err != nil {
		s.T.Fatal(err)
	}
	return server
}

// begin starts all flows.
func (s *sourceSwitch) begin() {
	s.T.Helper()
	for i, behind := range s.behind {
		elsewhere, v6 := s.elsewhere[i], behind.Is6()
		for _, h := range []*lab.Host{s.peer.Host, s.ext.Host} {
			s.quiet("the gateway to "+h.Name(), s.pod.Host, behind, h, h.Addr(v6))
			s.quiet(h.Name()+" to the gateway", h, h.Addr(v6), s.pod.Host, behind)
			at := netip.AddrPortFrom(h.Addr(v6), 80)
			stream, err := echo.StartStream(s.pod.Host, at, echo.StreamOptions{From: behind, Timeout: soon})
			if err != nil {
				s.T.Fatal(err)
			}
			s.streams = append(s.streams, stream)
			s.at(h, h.Addr(v6), portAnswers) // a host with several addresses may answer from another one
			s.flow(&s.flows, s.pod.Host, netip.AddrPortFrom(behind, 0), netip.AddrPortFrom(h.Addr(v6), portAnswers))
			s.flow(&s.flows, h, netip.AddrPortFrom(h.Addr(v6), 0), netip.AddrPortFrom(behind, portAnswers))
		}
		// Flows of the machine outside with the other pod. The gateway sends what looks like an answer of one.
		asking, asked := netip.AddrPortFrom(s.peer.Addr(v6), firstOpener), netip.AddrPortFrom(elsewhere, portAnswers)
		s.flow(&s.flows, s.peer.Host, asking, asked)
		s.flow(&s.flows, s.ext.Host, netip.AddrPortFrom(elsewhere, 0), netip.AddrPortFrom(s.peer.Addr(v6), portAnswers))
		s.flow(&s.forged, s.pod.Host, asked, asking)
		s.flow(&s.oneWay, s.pod.Host, netip.AddrPortFrom(elsewhere, 0), netip.AddrPortFrom(s.peer.Addr(v6), portOneWay))
	}
}

// flow starts a flow of datagrams. Its end waits for missing answers only if it is to get answers.
func (s *sourceSwitch) flow(list *[]*traffic.UDPFlow, h *lab.Host, from, to netip.AddrPort) {
	s.T.Helper()
	grace := soon
	if list != &s.flows {
		grace = time.Millisecond
	}
	f, err := traffic.StartUDPFlow(h, to, traffic.UDPFlowOptions{Interval: 5 * time.Millisecond, Grace: grace, From: from})
	if err != nil {
		s.T.Fatal(err)
	}
	*list = append(*list, f)
}

// quiet opens a connection and a flow of datagrams that are used after each switch only.
func (s *sourceSwitch) quiet(what string, from *lab.Host, src netip.Addr, to *lab.Host, dst netip.Addr) {
	s.T.Helper()
	number := uint16(len(s.pairs)) + 1
	opener, responder := netip.AddrPortFrom(src, firstOpener+number), netip.AddrPortFrom(dst, firstResponder+number)
	var listens net.ListenConfig
	listens.SetMultipathTCP(false)
	tcp, udp := talk{what: "TCP, " + what}, talk{what: "UDP, " + what}
	dial := func(h *lab.Host, network string, local net.Addr, to netip.AddrPort) (c net.Conn, err error) {
		d := net.Dialer{LocalAddr: local, Timeout: soon}
		err = h.Do(func() error { c, err = d.Dial(network, to.String()); return err })
		return c, err
	}
	var listener net.Listener
	must := func(err error) {
		s.T.Helper()
		if err != nil {
			s.T.Fatalf("%s: %v", what, err)
		}
	}
	must(to.Do(func() (err error) {
		listener, err = listens.Listen(context.Background(), "tcp", responder.String())
		return err
	}))
	defer listener.Close()
	var err error
	tcp.opener, err = dial(from, "tcp", net.TCPAddrFromAddrPort(opener), responder)
	must(err)
	tcp.responder, err = listener.Accept()
	must(err)
	udp.responder, err = dial(to, "udp", net.UDPAddrFromAddrPort(responder), opener)
	must(err)
	udp.opener, err = dial(from, "udp", net.UDPAddrFromAddrPort(opener), responder)
	must(err)
	for _, p := range []talk{tcp, udp} {
		s.T.Cleanup(func() { _, _ = p.opener.Close(), p.responder.Close() })
		s.hears(p, "at first", p.opener, p.responder)
		s.hears(p, "at first", p.responder, p.opener)
		s.pairs = append(s.pairs, p)
	}
}

// hears demands that what one end of a flow sends comes to the other.
func (s *sourceSwitch) hears(p talk, when string, from, to net.Conn) {
	s.T.Helper()
	text := []byte("still here")
	got := make([]byte, len(text))
	err := to.SetReadDeadline(time.Now().Add(soon))
	if err == nil {
		_, err = from.Write(text)
	}
	if err == nil {
		_, err = io.ReadFull(to, got)
	}
	if err != nil {
		s.T.Errorf("%s, %s: from %v to %v: %v", p.what, when, from.LocalAddr(), to.LocalAddr(), err)
	}
}

// some demands that every flow goes on. In those that were quiet, the end that was asked is the first to send.
func (s *sourceSwitch) some(when string) {
	s.T.Helper()
	var group sync.WaitGroup
	for _, p := range s.pairs {
		group.Go(func() {
			s.hears(p, when, p.responder, p.opener)
			s.hears(p, when, p.opener, p.responder)
		})
	}
	group.Wait()
	testutil.WaitForMore(s.T, soon, "traffic "+when, 3, func() (list []uint64) {
		for _, stream := range s.streams {
			list = append(list, stream.Result().Received)
		}
		for _, f := range s.flows {
			list = append(list, f.Result().Received)
		}
		for _, f := range slices.Concat(s.oneWay, s.forged) {
			list = append(list, f.Result().Sent)
		}
		return list
	})
}

// end stops everything, and fails the test if a packet was lost or came that policy denies.
func (s *sourceSwitch) end() {
	s.T.Helper()
	for i, stream := range s.streams {
		if r := stream.Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			s.T.Errorf("stream %d: %+v", i, r)
		}
	}
	sent := [2]uint64{}
	for i, f := range s.flows {
		r := f.Stop()
		// A foreign datagram is one that the gateway has sent in the name of the machine outside.
		if sent[0] += r.Sent; r.Lost != 0 || r.Refused != 0 || r.SendErrors != 0 || r.Foreign != 0 {
			s.T.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	for _, f := range s.forged {
		if r := f.Stop(); r.SendErrors != 0 {
			s.T.Errorf("UDP that policy denies: %+v", r)
		}
	}
	for _, f := range s.oneWay {
		r := f.Stop()
		if sent[1] += r.Sent; r.SendErrors != 0 {
			s.T.Errorf("UDP from an address elsewhere: %+v", r)
		}
	}
	testutil.WaitFor(s.T, soon, fmt.Sprintf("%d datagrams from addresses elsewhere to arrive", sent[1]), func() bool { return s.arrived.Received() >= sent[1] })
	if n := s.arrived.Received(); n != sent[1] {
		s.T.Errorf("%d datagrams from addresses elsewhere have arrived, want %d", n, sent[1])
	}
	s.T.Logf("%d datagrams with answers, %d from addresses elsewhere", sent[0], sent[1])
}

// TestNoFlowOfAFurtherSourceIsLostInASwitch: flows of a pod at addresses that it lists, which its node routes to it, opened by either
// end; and datagrams from addresses that its node routes elsewhere, beside flows of the machine that has these. With
// MARGAY_E2E_SWITCHES more than four times.
func TestNoFlowOfAFurtherSourceIsLostInASwitch(t *testing.T) {
	s := newSourceSwitch(t)
	s.begin()
	s.some("at first")
	a := s.Agent(0)
	flags := a.Flags
	for i := range switches(t) {
		mode := modes[i%len(modes)]
		a.Kill()
		a.Flags = slices.Concat(flags, mode)
		a.Start()
		s.some("in mode " + strings.Join(mode, " "))
	}
	s.end()
}
