package cluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	openPort, closedPort = 80, 81
	// onlyOpen is the policy that startTraffic needs in force at the servers, which have to be labelled tier: base.
	onlyOpen = `{podSelector: {matchLabels: {tier: base}}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
	// onlyBase restricts the client, labelled app: client, to the servers.
	onlyBase = `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {tier: base}}}]}]}`
)

// steadyTraffic runs while something is done to the cluster: old flows and new ones that policy allows, and new ones that it
// denies, all of it over both families. Nothing that is done may disturb it.
type steadyTraffic struct {
	t       testing.TB
	from    *lab.Pod
	streams []*echo.Stream
	flows   []*traffic.UDPFlow
	probers [2]*traffic.Prober // of what is allowed, and of what is denied
	denied  []*echo.Server
	crossed []*traffic.Crossing // of the TCP segments between from and each of the others
}

// startTraffic starts it from one pod to others, and to the addresses, which are those of a Service of the last one. What is denied comes
// from the other pod. A SYN that the kernel of a busy machine sends twice is not a lost one, so the segments are compared at both ends.
func (c *cluster) startTraffic(from, denied *lab.Pod, vips []netip.Addr, to ...*lab.Pod) *steadyTraffic {
	c.t.Helper()
	tr := &steadyTraffic{t: c.t, from: from}
	for i, p := range to {
		var asked []netip.AddrPort
		for _, a := range p.Addrs() {
			asked = append(asked, netip.AddrPortFrom(a, openPort))
		}
		if i == len(to)-1 {
			for _, a := range vips {
				asked = append(asked, netip.AddrPortFrom(a, openPort))
			}
		}
		crossed, err := traffic.OpenCrossing(from, p, openPort, asked...)
		c.must(err)
		tr.crossed = append(tr.crossed, crossed)
	}
	var targets [2][]traffic.Target
	open := func(at netip.Addr) {
		s, err := echo.StartStream(from.Host, netip.AddrPortFrom(at, openPort), echo.StreamOptions{Interval: 5 * time.Millisecond})
		c.must(err)
		f, err := traffic.StartUDPFlow(from.Host, netip.AddrPortFrom(at, openPort), traffic.UDPFlowOptions{Interval: 5 * time.Millisecond})
		c.must(err)
		tr.streams, tr.flows = append(tr.streams, s), append(tr.flows, f)
		targets[0] = append(targets[0], traffic.Target{Addr: netip.AddrPortFrom(at, openPort), Allowed: true, Timeout: 5 * time.Second})
	}
	for _, a := range vips {
		open(a)
	}
	for _, p := range to {
		s, err := echo.ListenTCP(p.Host, closedPort)
		c.must(err)
		tr.denied = append(tr.denied, s)
		for _, a := range p.Addrs() {
			open(a)
			targets[1] = append(targets[1], traffic.Target{Addr: netip.AddrPortFrom(a, closedPort)})
		}
	}
	for i, p := range []*lab.Pod{from, denied} {
		var err error
		tr.probers[i], err = traffic.StartProber(p.Host, traffic.ProberOptions{Interval: 25 * time.Millisecond}, targets[i]...)
		c.must(err)
	}
	tr.some("at first")
	return tr
}

// some waits until every part of it has got on.
func (tr *steadyTraffic) some(what string) {
	tr.t.Helper()
	var attempts [2][]uint64
	for i, p := range tr.probers {
		for _, r := range p.Results() {
			attempts[i] = append(attempts[i], r.Attempts)
		}
	}
	streams, flows := make([]uint64, len(tr.streams)), make([]uint64, len(tr.flows))
	for i := range tr.streams {
		streams[i], flows[i] = tr.streams[i].Result().Received, tr.flows[i].Result().Received
	}
	testutil.WaitFor(tr.t, soon, "traffic "+what, func() bool {
		for i, p := range tr.probers {
			for j, r := range p.Results() {
				if r.Attempts < attempts[i][j]+5 {
					return false
				}
			}
		}
		for i := range tr.streams {
			if tr.streams[i].Result().Received < streams[i]+10 || tr.flows[i].Result().Received < flows[i]+10 {
				return false
			}
		}
		return true
	})
}

// stop demands that nothing was lost, cut or misjudged.
func (tr *steadyTraffic) stop() {
	tr.t.Helper()
	var exchanges, datagrams, connections, refused uint64
	for i, s := range tr.streams {
		r := s.Stop()
		exchanges += r.Received
		if r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			tr.t.Errorf("stream %d: %+v", i, r)
		}
	}
	for i, f := range tr.flows {
		r := f.Stop()
		datagrams += r.Received
		if r.Lost != 0 || r.Duplicated != 0 || r.Refused != 0 || r.SendErrors != 0 {
			tr.t.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	for _, r := range append(tr.probers[0].Stop(), tr.probers[1].Stop()...) {
		if r.Target.Allowed {
			connections += r.Attempts
		} else {
			refused += r.Attempts
		}
		if r.Wrong != 0 {
			tr.t.Errorf("%d of %d attempts at %s wrong (allowed: %v), outcomes %v, first %+v", r.Wrong, r.Attempts,
				r.Target.Addr, r.Target.Allowed, r.Outcomes, r.FirstWrong)
		}
	}
	for i, crossed := range tr.crossed {
		if r := crossed.Stop(soon); r.LostAll != 0 || r.Unseen != 0 || r.Begun == 0 {
			tr.t.Errorf("TCP segments between %s and the pod %d of its connections that are allowed: %+v", tr.from.Name(), i, r)
		}
	}
	for _, s := range tr.denied {
		if n := s.Accepted(); n != 0 {
			tr.t.Errorf("%s, which is denied, accepted %d connections", s.Name(), n)
		}
	}
	tr.t.Logf("traffic: %d requests on %d old connections, %d datagrams, %d new connections that are allowed and %d that are denied",
		exchanges, len(tr.streams), datagrams, connections, refused)
}
