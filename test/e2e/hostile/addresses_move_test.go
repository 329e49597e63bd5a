package hostile

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
)

// A route that is replaced by an equal one, and an agent that starts while traffic flows, cost no packet of a pod whose
// address stays its own.
func TestAnAddressThatStaysLosesNothing(t *testing.T) {
	s := newScene(t)
	families(t, func(t *testing.T, v6 bool) {
		_, udp := s.Serve(s.b.Host, map[bool]uint16{false: 7, true: 8}[v6])
		to := udp.Addr4()
		if v6 {
			to = udp.Addr6()
		}
		flow, err := traffic.StartUDPFlow(s.a.Host, to, traffic.UDPFlowOptions{Interval: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		answered := func() {
			t.Helper()
			n := flow.Result().Received
			testutil.WaitFor(t, soon, "answers", func() bool { return flow.Result().Received > n+50 })
		}
		answered()
		for range 20 {
			for _, p := range []*lab.Pod{s.a, s.b} {
				a := netip.PrefixFrom(p.Addr(v6), p.Addr(v6).BitLen()).String()
				if _, err := s.n1.Run(context.Background(), "", "ip", "route", "replace", a, "dev", p.Iface(), "scope", "link"); err != nil {
					t.Fatal(err)
				}
			}
		}
		answered()
		s.Agent(0).Kill()
		answered()
		s.Agent(0).Start()
		answered()
		if got := flow.Stop(); got.Lost > 0 {
			t.Errorf("%+v: lost some", got)
		}
	})
}

// How long an address that changes its route is the wrong pod's: measured, and bounded generously.
func TestAnAddressMovesAtOnce(t *testing.T) {
	testcluster.NeedsBPF(t, "it reads BPF maps")
	s := newScene(t)
	one, two := s.Pod(s.n1, "evil/one"), s.Pod(s.n1, "evil/two")
	floating := netip.MustParseAddr("10.65.1.200")
	for _, p := range []*lab.Pod{one, two} {
		s.claimant(p, false, floating)
	}
	maps := s.Agent(0).Maps()
	owner := func() uint32 {
		if err := maps.Addresses.IP4Host.Adopt(); err != nil {
			t.Fatal(err)
		}
		info, _ := maps.Addresses.IP4Host.Get(bpfmaps.IP4(floating))
		return info.Ifindex
	}
	var took []time.Duration
	for i := range 20 {
		p := []*lab.Pod{one, two}[i%2]
		s.awaitClaim(p, floating)
		if _, err := s.n1.Run(context.Background(), "", "ip", "route", "replace", floating.String()+"/32", "dev", p.Iface()); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		for owner() != uint32(p.IfIndex()) {
			if time.Since(started) > soon {
				t.Fatal("the address does not move")
			}
		}
		took = append(took, time.Since(started))
	}
	slices.Sort(took)
	t.Logf("median %v, largest %v", took[len(took)/2], took[len(took)-1])
}

// awaitClaim waits until the agent knows that a pod claims an address.
func (s *scene) awaitClaim(p *lab.Pod, a netip.Addr) {
	s.T.Helper()
	testutil.WaitFor(s.T, soon, p.Name()+" to claim "+a.String(), func() bool {
		row := s.Row(p)
		if row == nil {
			return false
		}
		for _, l := range row.Lost {
			if l.Addr == a {
				return true
			}
		}
		return slices.Contains(row.Addrs, a)
	})
}
