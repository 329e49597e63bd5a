package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// serverKey says where a server listens. UDP servers of the outside host are one for each address.
type serverKey struct {
	host *lab.Host
	udp  bool
	addr netip.Addr
	port uint16
}

type receiverKey struct {
	host     *lab.Host
	protocol uint8
	v6       bool
}

// itself are the addresses through which pods reach themselves by way of a Service.
var itself = map[bool]netip.Addr{false: netip.MustParseAddr("10.96.0.9"), true: netip.MustParseAddr("fd96::9")}

// anyPort is the source port of checks that do not state one.
const anyPort = 40000

// attempt is one check being tried; do reports whether the packet got through, and what happened.
type attempt struct {
	check corpus.Check
	do    func(timeout time.Duration) (bool, error)
}

// try makes all checks' packets real, at the same time, and demands that those get through that want says.
func (s *stage) try(t *testing.T, checks []corpus.Check, want func(corpus.Check) bool) {
	t.Helper()
	type outcome struct {
		attempt
		passed bool
		err    error
	}
	done := make(chan outcome)
	var attempts []attempt
	for _, c := range checks {
		attempts = append(attempts, attempt{c, s.prepare(t, c)})
	}
	for _, a := range attempts {
		timeout := deniedFor
		if want(a.check) {
			timeout = allowedWithin
		}
		go func() {
			passed, err := a.do(timeout)
			done <- outcome{a, passed, err}
		}()
	}
	for range attempts {
		if o := <-done; o.passed != want(o.check) {
			t.Errorf("%s:%d: %s: got through: %v, want %v (%v)", o.check.File, o.check.Line, o.check.Text, o.passed, want(o.check), o.err)
		}
	}
}

// host is the machine that has the address.
func (s *stage) host(a netip.Addr, id *model.EndpointID) *lab.Host {
	if id != nil {
		return s.pods[*id].Host
	}
	for name, addrs := range nodeAddrs {
		for _, own := range addrs {
			if own == a {
				return s.nodes[name].Host
			}
		}
	}
	return s.world.Host
}

// prepare makes what the check's packet needs at its destination and returns what sends it.
func (s *stage) prepare(t *testing.T, c corpus.Check) func(time.Duration) (bool, error) {
	t.Helper()
	p := c.Packet
	from, to := s.host(p.Src, c.SrcEndpoint), s.host(p.Dst, c.DstEndpoint)
	src, dst := netip.AddrPortFrom(p.Src, p.SrcPort), netip.AddrPortFrom(p.Dst, p.DstPort)
	if p.SrcPort == anyPort {
		src = netip.AddrPortFrom(p.Src, 0)
	}
	switch {
	case p.Protocol == model.ProtoTCP || p.Protocol == model.ProtoUDP:
		k := serverKey{host: to, udp: p.Protocol == model.ProtoUDP, port: p.DstPort}
		if k.udp && to == s.world.Host {
			k.addr = p.Dst
		}
		s.serve(t, k)
		if from == to {
			dst = s.throughService(t, c)
		}
		if p.Protocol == model.ProtoTCP {
			return result(func(d time.Duration) lab.Attempt { return from.DialTCPFrom(src, dst, d) })
		}
		return result(func(d time.Duration) lab.Attempt { return from.ExchangeUDPFrom(src, dst, []byte("hello"), d) })
	case p.Protocol == model.ProtoICMP && p.ICMPType == 8, p.Protocol == model.ProtoICMPv6 && p.ICMPType == 128:
		return result(func(d time.Duration) lab.Attempt { return from.PingFrom(p.Src, p.Dst, d) })
	}
	return s.raw(t, from, to, p)
}

// result of an attempt by a socket. A handshake is enough to have got through.
func result(do func(time.Duration) lab.Attempt) func(time.Duration) (bool, error) {
	return func(timeout time.Duration) (bool, error) {
		a := do(timeout)
		switch a.Outcome {
		case lab.Connected:
			return true, nil
		case lab.Timeout:
			return a.Established, a.Err
		}
		return true, fmt.Errorf("neither an answer nor silence: %v: %w", a.Outcome, a.Err)
	}
}

func (s *stage) serve(t *testing.T, k serverKey) {
	t.Helper()
	if s.servers[k] {
		return
	}
	s.servers[k] = true
	var err error
	if k.udp {
		_, err = k.host.ListenUDPAt(k.addr, k.port)
	} else {
		_, err = k.host.ListenTCP(k.port)
	}
	s.must(t, err)
}

// throughService makes the pod reach itself by way of its node, which gives the packet back.
func (s *stage) throughService(t *testing.T, c corpus.Check) netip.AddrPort {
	t.Helper()
	protocol := "tcp"
	if c.Packet.Protocol == model.ProtoUDP {
		protocol = "udp"
	}
	vip := netip.AddrPortFrom(itself[c.Packet.Dst.Is6()], c.Packet.DstPort)
	s.must(t, s.pods[*c.SrcEndpoint].Node().SetService(lab.Service{
		Addr: vip, Protocol: protocol, Backends: []netip.AddrPort{netip.AddrPortFrom(c.Packet.Dst, c.Packet.DstPort)},
	}))
	return vip
}

// raw sends a packet of a protocol without sockets and looks for it behind all filters of the destination.
func (s *stage) raw(t *testing.T, from, to *lab.Host, p model.Packet) func(time.Duration) (bool, error) {
	t.Helper()
	k := receiverKey{to, p.Protocol, p.Dst.Is6()}
	if s.receivers[k] == nil {
		r, err := to.ReceiveRaw(k.protocol, k.v6)
		s.must(t, err)
		s.receivers[k] = r
	}
	s.tokens++
	token := binary.BigEndian.AppendUint64([]byte("token of a check"), s.tokens)
	packet := testutil.Packet{Src: p.Src, Dst: p.Dst, Payload: token}
	sport := p.SrcPort
	if sport == anyPort { // the flow of an earlier check must not matter
		sport = uint16(20000 + s.tokens)
	}
	switch p.Protocol {
	case model.ProtoSCTP:
		packet.L4, packet.Payload = testutil.SCTP{SrcPort: sport, DstPort: p.DstPort}, sctpInit(token)
	case model.ProtoUDPLite:
		packet.L4 = testutil.UDP{SrcPort: sport, DstPort: p.DstPort, Lite: true}
	case model.ProtoICMP, model.ProtoICMPv6:
		packet.L4 = testutil.ICMP{Type: p.ICMPType, Code: p.ICMPCode}
	default:
		packet.L4 = testutil.Raw(p.Protocol)
	}
	return func(timeout time.Duration) (bool, error) {
		if err := from.SendRaw(packet.IP(), p.Dst); err != nil {
			return true, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		err := s.receivers[k].Wait(ctx, token)
		return err == nil, err
	}
}

// sctpInit is an INIT chunk with a parameter that nobody knows and everybody may skip.
func sctpInit(parameter []byte) []byte {
	chunk := []byte{1, 0, 0, 0, 1, 2, 3, 4, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1}
	chunk = binary.BigEndian.AppendUint16(chunk, 0xbfff)
	chunk = binary.BigEndian.AppendUint16(chunk, uint16(4+len(parameter)))
	chunk = append(chunk, parameter...)
	binary.BigEndian.PutUint16(chunk[2:], uint16(len(chunk)))
	return chunk
}
