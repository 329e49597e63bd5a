package iptables

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// tenantFlows are always allowed, or never, whatever changes.
type tenantFlows struct {
	crossing *traffic.Crossing
	streams  []*echo.Stream
	flows    []*traffic.UDPFlow
	prober   *traffic.Prober
}

// start starts the servers of the pod, and then all traffic of the peer but for the probes.
func (x *tenant) start() (err error) {
	for _, port := range []uint16{portOpen, portClosed} {
		if _, err := echo.ListenTCP(x.pod.Host, port); err != nil {
			return err
		}
	}
	if x.probed, err = echo.ListenTCP(x.pod.Host, portProbed); err != nil {
		return err
	}
	if _, err := echo.ListenUDP(x.pod.Host, portOpen); err != nil {
		return err
	}
	if x.witness, err = traffic.OpenTap(x.pod.Host, "eth0", x.watch); err != nil {
		return err
	}
	var targets []traffic.Target
	var open []netip.AddrPort
	for _, a := range x.pod.Addrs() {
		open = append(open, netip.AddrPortFrom(a, portOpen))
		targets = append(targets, traffic.Target{Addr: netip.AddrPortFrom(a, portOpen), Allowed: true, Timeout: patience}, traffic.Target{Addr: netip.AddrPortFrom(a, portClosed)})
	}
	f := &x.flows
	if f.crossing, err = traffic.OpenCrossing(x.peer, x.pod, portOpen, open...); err != nil {
		return err
	}
	for _, a := range open {
		stream, err := echo.StartStream(x.peer.Host, a, echo.StreamOptions{Interval: 50 * time.Millisecond, Timeout: patience})
		if err != nil {
			return err
		}
		flow, err := traffic.StartUDPFlow(x.peer.Host, a, traffic.UDPFlowOptions{Interval: 20 * time.Millisecond, Grace: patience})
		if err != nil {
			return err
		}
		f.streams, f.flows = append(f.streams, stream), append(f.flows, flow)
	}
	f.prober, err = traffic.StartProber(x.peer.Host, traffic.ProberOptions{Interval: 200 * time.Millisecond}, targets...)
	return err
}

// tenantTraffic is what tenantFlows have counted.
type tenantTraffic struct{ datagrams, attempts, segments, bare uint64 }

// stop demands that no packet was lost or misjudged.
func (f *tenantFlows) stop(t testing.TB, sum *tenantTraffic) {
	t.Helper()
	for i, s := range f.streams {
		if r := s.Stop(); r.Errors > 0 || r.Connects != 1 {
			t.Errorf("a live connection: %+v", r)
		}
		r := f.flows[i].Stop()
		if sum.datagrams += r.Sent; r.Lost > 0 || r.Refused > 0 || r.SendErrors > 0 {
			t.Errorf("datagrams: %+v", r)
		}
	}
	for _, r := range f.prober.Stop() {
		if sum.attempts += r.Attempts; r.Wrong > 0 {
			t.Errorf("%d of %d attempts at %v misjudged, first %+v", r.Wrong, r.Attempts, r.Target, r.FirstWrong)
		}
	}
	r := f.crossing.Stop(patience)
	if sum.segments, sum.bare = sum.segments+r.Left, sum.bare+r.Bare; r.LostAll > 0 || r.LostBare > 0 || r.Unseen > 0 {
		t.Errorf("TCP segments to the open port and back: %+v", r)
	}
}

// stop stops all traffic and returns its counts.
func (n *tenants) stop() (sum tenantTraffic) {
	n.t.Helper()
	var group sync.WaitGroup
	each := make([]tenantTraffic, len(n.list))
	for i, x := range n.list {
		group.Go(func() { x.flows.stop(n.t, &each[i]) })
	}
	group.Wait()
	for _, one := range each {
		sum.datagrams, sum.attempts = sum.datagrams+one.datagrams, sum.attempts+one.attempts
		sum.segments, sum.bare = sum.segments+one.segments, sum.bare+one.bare
	}
	return sum
}
