// Package sockets makes the packets of the corpus real: each check is tried from its source to its destination, between
// hosts of a lab, by what a user would use, or by a raw packet where that is nothing.
package sockets

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

// patience with one packet that must get through, and with one that must not.
const (
	allowedWithin = time.Minute
	deniedFor     = 250 * time.Millisecond
)

// anyPort is the source port of checks that do not state one.
const anyPort = 40000

// Traffic tries checks. It starts the servers and receivers that they need and keeps them: those of hosts that are gone
// are gone with them. It is not safe for concurrent use.
type Traffic struct {
	// Host is the machine that has the address; the endpoint is nil if it is none's.
	Host func(a netip.Addr, id *model.EndpointID) *lab.Host
	// World is the one that has several addresses of a family.
	World *lab.Host
	// Service is where the check's destination is reached by way of a Service, in the family of the check; not ok: there
	// is none for it. A check of TCP or UDP that has one is tried that way too. A pod reaches itself in no other way, so
	// that its packets are seen outside of it.
	Service func(corpus.Check) (at netip.AddrPort, ok bool, err error)

	// NodePort is where the check's client reaches the destination by the NodePort that the check is about.
	NodePort func(corpus.Check) (netip.AddrPort, error)

	servers   map[serverKey]io.Closer // nil: another one listens there
	receivers map[receiverKey]*traffic.RawReceiver
	tokens    uint64
}

// serverKey says where a server listens. UDP servers of the World are one for each address.
type serverKey struct {
	host *lab.Host
	udp  bool
	addr netip.Addr
	port uint16
}

// attempt is one way to try a check; do reports whether the packet got through, and what happened.
type attempt struct {
	check corpus.Check
	way   string // "" or how beside directly
	do    func(timeout time.Duration) (bool, error)
}

// Try makes all checks' packets real and returns an error for each that gets through although want does not say so, or does
// not although it does. All are tried at the same time, but for those with source ports of their own, which come afterwards
// and one by one: a port is another check's otherwise.
func (t *Traffic) Try(checks []corpus.Check, want func(corpus.Check) bool) (wrong []error) {
	own := func(c corpus.Check) bool { return c.Packet.SrcPort != anyPort && model.HasPorts(c.Packet.Protocol) }
	wrong = t.together(slices.DeleteFunc(slices.Clone(checks), own), want)
	for _, c := range checks {
		if own(c) {
			wrong = append(wrong, t.together([]corpus.Check{c}, want)...)
		}
	}
	return wrong
}

// together tries the checks at the same time.
func (t *Traffic) together(checks []corpus.Check, want func(corpus.Check) bool) (wrong []error) {
	type outcome struct {
		attempt
		passed bool
		err    error
	}
	var attempts []attempt
	for _, c := range checks {
		ways, err := t.prepare(c)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", c.File, c.Line, err))
		}
		attempts = append(attempts, ways...)
	}
	done := make(chan outcome)
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
			wrong = append(wrong, fmt.Errorf("%s:%d: %s%s: got through: %v, want %v (%v)",
				o.check.File, o.check.Line, o.check.Text, o.way, o.passed, want(o.check), o.err))
		}
	}
	return wrong
}

// prepare makes what the check's packet needs at its destination and returns the ways to send it.
func (t *Traffic) prepare(c corpus.Check) ([]attempt, error) {
	p := c.Packet
	if c.NodePort {
		return t.byNodePort(c)
	}
	from, to := t.Host(p.Src, c.SrcEndpoint), t.Host(p.Dst, c.DstEndpoint)
	if from == nil || to == nil {
		return nil, fmt.Errorf("%s: an end is not there", c.Text)
	}
	switch {
	case p.Protocol == model.ProtoTCP || p.Protocol == model.ProtoUDP:
		return t.bySocket(c, from, to)
	case p.ICMPCode == 0 && (p.Protocol == model.ProtoICMP && p.ICMPType == 8 || p.Protocol == model.ProtoICMPv6 && p.ICMPType == 128):
		return []attempt{{check: c, do: result(func(d time.Duration) echo.Attempt { return traffic.PingFrom(from, p.Src, p.Dst, d) }, true)}}, nil
	}
	do, err := t.raw(from, to, p)
	return []attempt{{check: c, do: do}}, err
}

func (t *Traffic) bySocket(c corpus.Check, from, to *lab.Host) (ways []attempt, err error) {
	p := c.Packet
	if err := t.vacate(from, p); err != nil {
		return nil, err
	}
	if err := t.Serve(to, p.Protocol, p.Dst, p.DstPort); err != nil {
		return nil, err
	}
	service, ok, err := t.Service(c)
	if err != nil {
		return nil, err
	}
	if from != to {
		dst := netip.AddrPortFrom(p.Dst, p.DstPort)
		ways = append(ways, attempt{check: c, do: bySocket(from, p, dst, true)})
	}
	if ok && (len(ways) == 0 || p.SrcPort == anyPort) { // two at a time cannot have one port
		ways = append(ways, attempt{c, " by way of " + service.String(), bySocket(from, p, service, false)})
	}
	if len(ways) == 0 {
		return nil, fmt.Errorf("%s: a pod reaches itself only by way of a Service", c.Text)
	}
	return ways, nil
}

// byNodePort has the client of the check, which is an outside address, reach the destination by the NodePort.
func (t *Traffic) byNodePort(c corpus.Check) ([]attempt, error) {
	p := c.Packet
	if err := t.Serve(t.Host(p.Dst, c.DstEndpoint), p.Protocol, p.Dst, p.DstPort); err != nil {
		return nil, err
	}
	at, err := t.NodePort(c)
	if err != nil {
		return nil, err
	}
	p.Src = c.Client
	return []attempt{{c, " by the NodePort " + at.String(), bySocket(t.World, p, at, false)}}, nil
}

// bySocket sends the packet from its source to dst. Who refuses it is, if answered says so, the destination.
func bySocket(from *lab.Host, p model.Packet, dst netip.AddrPort, answered bool) func(time.Duration) (bool, error) {
	src := netip.AddrPortFrom(p.Src, p.SrcPort)
	if p.SrcPort == anyPort {
		src = netip.AddrPortFrom(p.Src, 0)
	}
	if p.Protocol == model.ProtoTCP {
		return result(func(d time.Duration) echo.Attempt { return echo.DialTCPFrom(from, src, dst, d) }, answered)
	}
	return result(func(d time.Duration) echo.Attempt { return echo.ExchangeUDPFrom(from, src, dst, []byte("hello"), d) }, answered)
}

// result of an attempt by a socket. A handshake is enough to have got through.
func result(do func(time.Duration) echo.Attempt, answered bool) func(time.Duration) (bool, error) {
	return func(timeout time.Duration) (bool, error) {
		a := do(timeout)
		switch a.Outcome {
		case echo.Connected:
			return true, nil
		case echo.Timeout:
			return a.Established, a.Err
		}
		return answered, fmt.Errorf("neither an answer nor silence: %v: %w", a.Outcome, a.Err)
	}
}

// Serve starts a server of TCP or UDP unless one is there, ours or another one.
func (t *Traffic) Serve(host *lab.Host, protocol uint8, a netip.Addr, port uint16) (err error) {
	k := serverKey{host: host, udp: protocol == model.ProtoUDP, port: port}
	if k.udp && host == t.World {
		k.addr = a
	}
	if _, there := t.servers[k]; there {
		return nil
	}
	var server io.Closer
	if k.udp {
		server, err = echo.ListenUDPAt(host, k.addr, port)
	} else {
		server, err = echo.ListenTCP(host, port)
	}
	if err != nil {
		server = nil
	}
	if t.servers == nil {
		t.servers = map[serverKey]io.Closer{}
	}
	t.servers[k] = server
	if errors.Is(err, unix.EADDRINUSE) {
		return nil
	}
	return err
}

// vacate ends our servers on the source port of the check.
func (t *Traffic) vacate(from *lab.Host, p model.Packet) error {
	var errs []error
	for k, server := range t.servers {
		if k.host == from && k.port == p.SrcPort && k.udp == (p.Protocol == model.ProtoUDP) && server != nil {
			delete(t.servers, k)
			errs = append(errs, server.Close())
		}
	}
	return errors.Join(errs...)
}
