package cluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	openPort, closedPort = 80, 81
	// onlyOpen is the policy that startTraffic needs in force at the servers, which have to be labelled tier: base.
	onlyOpen = `{podSelector: {matchLabels: {tier: base}}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
	// onlyBase restricts the client, labelled app: client, to the servers.
	onlyBase = `{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {tier: base}}}]}]}`
)

// traffic runs while something is done to the cluster: old flows and new ones that policy allows, and new ones that it
// denies, all of it over both families. Nothing that is done may disturb it.
type traffic struct {
	t       testing.TB
	streams []*lab.Stream
	flows   []*lab.UDPFlow
	prober  *lab.Prober
	denied  []*lab.Server
}

// startTraffic starts it from one pod to the others, and to the addresses, which are a Service's.
func (c *cluster) startTraffic(from *lab.Pod, vips []netip.Addr, to ...*lab.Pod) *traffic {
	c.t.Helper()
	tr := &traffic{t: c.t}
	var targets []lab.Target
	open := func(at netip.Addr) {
		s, err := from.StartStream(netip.AddrPortFrom(at, openPort), lab.StreamOptions{Interval: 5 * time.Millisecond})
		c.must(err)
		f, err := from.StartUDPFlow(netip.AddrPortFrom(at, openPort), lab.UDPFlowOptions{Interval: 5 * time.Millisecond})
		c.must(err)
		tr.streams, tr.flows = append(tr.streams, s), append(tr.flows, f)
		targets = append(targets, lab.Target{Addr: netip.AddrPortFrom(at, openPort), Allowed: true})
	}
	for _, a := range vips {
		open(a)
	}
	for _, p := range to {
		s, err := p.ListenTCP(closedPort)
		c.must(err)
		tr.denied = append(tr.denied, s)
		for _, a := range p.Addrs() {
			open(a)
			targets = append(targets, lab.Target{Addr: netip.AddrPortFrom(a, closedPort)})
		}
	}
	p, err := from.StartProber(lab.ProberOptions{Interval: 25 * time.Millisecond}, targets...)
	c.must(err)
	tr.prober = p
	tr.some("at first")
	return tr
}

// some waits until every part of it has got on.
func (tr *traffic) some(what string) {
	tr.t.Helper()
	attempts := make([]uint64, 0, len(tr.streams)+len(tr.denied))
	for _, r := range tr.prober.Results() {
		attempts = append(attempts, r.Attempts)
	}
	streams, flows := make([]uint64, len(tr.streams)), make([]uint64, len(tr.flows))
	for i := range tr.streams {
		streams[i], flows[i] = tr.streams[i].Result().Received, tr.flows[i].Result().Received
	}
	testutil.WaitFor(tr.t, soon, "traffic "+what, func() bool {
		for i, r := range tr.prober.Results() {
			if r.Attempts < attempts[i]+5 {
				return false
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
func (tr *traffic) stop() {
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
	for _, r := range tr.prober.Stop() {
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
	for _, s := range tr.denied {
		if n := s.Accepted(); n != 0 {
			tr.t.Errorf("%s, which is denied, accepted %d connections", s.Name(), n)
		}
	}
	tr.t.Logf("traffic: %d requests on %d old connections, %d datagrams, %d new connections that are allowed and %d that are denied",
		exchanges, len(tr.streams), datagrams, connections, refused)
}
