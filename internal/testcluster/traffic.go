package testcluster

import (
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Traffic runs while something is done to the agent: old flows and new ones that policy allows, and new ones that it
// denies. From one client to one server, over both families.
type Traffic struct {
	T       *testing.T
	between [2]*lab.Pod // client and server
	agents  map[*lab.Node]*Process
	Streams []*echo.Stream
	Flows   []*traffic.UDPFlow
	Prober  *traffic.Prober
	Denied  *echo.Server
}

const (
	OpenPort, ClosedPort = 80, 81
	// OnlyOpen is the spec of a policy that opens the port of the pod server to everybody.
	OnlyOpen = `{podSelector: {matchLabels: {app: server}}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`
)

// StartTraffic needs the policy OnlyOpen in force at the server. With vips, of one address per family, it goes through
// Services on the client's node.
func (c *Cluster) StartTraffic(client, server *lab.Pod, vips ...netip.Addr) *Traffic {
	c.T.Helper()
	tcp, udp := c.Serve(server.Host, OpenPort)
	denied, _ := c.Serve(server.Host, ClosedPort)
	tr := &Traffic{T: c.T, between: [2]*lab.Pod{client, server}, agents: c.Agents, Denied: denied}
	to := func(s *echo.Server, protocol string, v6 bool) netip.AddrPort {
		backend := netip.AddrPortFrom(server.Addr(v6), s.Port())
		for _, vip := range vips {
			if vip.Is6() != v6 {
				continue
			}
			front := netip.AddrPortFrom(vip, s.Port())
			service := lab.Service{Addr: front, Protocol: protocol, Backends: []netip.AddrPort{backend}}
			if err := client.Node().SetService(service); err != nil {
				c.T.Fatal(err)
			}
			return front
		}
		return backend
	}
	var targets []traffic.Target
	for _, v6 := range []bool{false, true} {
		open, closed, datagrams := to(tcp, "tcp", v6), to(denied, "tcp", v6), to(udp, "udp", v6)
		s, err := echo.StartStream(client.Host, open, echo.StreamOptions{Interval: 2 * time.Millisecond})
		if err != nil {
			c.T.Fatal(err)
		}
		f, err := traffic.StartUDPFlow(client.Host, datagrams, traffic.UDPFlowOptions{})
		if err != nil {
			c.T.Fatal(err)
		}
		tr.Streams, tr.Flows = append(tr.Streams, s), append(tr.Flows, f)
		targets = append(targets, traffic.Target{Addr: open, Allowed: true}, traffic.Target{Addr: closed})
	}
	p, err := traffic.StartProber(client.Host, traffic.ProberOptions{Interval: 5 * time.Millisecond}, targets...)
	if err != nil {
		c.T.Fatal(err)
	}
	tr.Prober = p
	tr.Some("at first")
	return tr
}

// Some waits until every probe has got on.
func (tr *Traffic) Some(what string) {
	tr.T.Helper()
	attempts, received := make([]uint64, 4), make([]uint64, 4)
	for i, r := range tr.Prober.Results() {
		attempts[i] = r.Attempts
	}
	for i := range tr.Streams {
		received[2*i], received[2*i+1] = tr.Streams[i].Result().Received, tr.Flows[i].Result().Received
	}
	testutil.WaitFor(tr.T, Soon, "traffic "+what, func() bool {
		for i, r := range tr.Prober.Results() {
			if r.Attempts < attempts[i]+5 {
				return false
			}
		}
		for i := range tr.Streams {
			if tr.Streams[i].Result().Received < received[2*i]+10 || tr.Flows[i].Result().Received < received[2*i+1]+10 {
				return false
			}
		}
		return true
	})
}

// Stop demands that nothing was lost, cut or misjudged. The log of a test that has failed gets what the dataplane counted as dropped.
func (tr *Traffic) Stop() {
	tr.T.Helper()
	tr.judge()
	if !tr.T.Failed() {
		return
	}
	for _, p := range tr.between {
		if a := tr.agents[p.Node()]; a != nil {
			tr.T.Logf("drops of %s: %v", p.Name(), a.Drops(p))
		}
	}
}

func (tr *Traffic) judge() {
	tr.T.Helper()
	for i, s := range tr.Streams {
		if r := s.Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 {
			tr.T.Errorf("stream %d: %+v", i, r)
		}
	}
	for i, f := range tr.Flows {
		if r := f.Stop(); r.Lost != 0 || r.Duplicated != 0 || r.Refused != 0 || r.SendErrors != 0 {
			tr.T.Errorf("UDP flow %d: %+v", i, r)
		}
	}
	for _, r := range tr.Prober.Stop() {
		if r.Wrong != 0 {
			tr.T.Errorf("%d of %d attempts at %s wrong (allowed: %v), outcomes %v, first %+v", r.Wrong, r.Attempts,
				r.Target.Addr, r.Target.Allowed, r.Outcomes, r.FirstWrong)
		}
	}
	if n := tr.Denied.Accepted(); n != 0 {
		tr.T.Errorf("the denied port accepted %d connections", n)
	}
}
