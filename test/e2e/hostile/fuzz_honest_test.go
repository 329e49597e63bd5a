package hostile

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// honest are flows of shop/a with shop/b and the outside, which no attack may disturb.
type honest struct {
	streams []*echo.Stream
	flows   []*traffic.UDPFlow
}

func (f *fuzzing) startHonest() (h honest) {
	f.T.Helper()
	for _, to := range []*lab.Host{f.b.Host, f.ext.Host} {
		for _, v6 := range []bool{false, true} {
			at := netip.AddrPortFrom(to.Addr(v6), 80)
			s, err := echo.StartStream(f.a.Host, at, echo.StreamOptions{Interval: 5 * time.Millisecond, Timeout: 10 * time.Second})
			if err != nil {
				f.T.Fatal(err)
			}
			u, err := traffic.StartUDPFlow(f.a.Host, at, traffic.UDPFlowOptions{Interval: 5 * time.Millisecond, Grace: soon})
			if err != nil {
				f.T.Fatal(err)
			}
			h.streams, h.flows = append(h.streams, s), append(h.flows, u)
		}
	}
	return h
}

// stop demands that nothing was lost or cut, and that there was something.
func (h honest) stop(t *testing.T) {
	t.Helper()
	for i, s := range h.streams {
		if r := s.Stop(); r.Sent != r.Received || r.Connects != 1 || r.Errors != 0 || r.Received == 0 {
			t.Errorf("the honest stream %d was disturbed: %+v", i, r)
		}
	}
	for i, f := range h.flows {
		if r := f.Stop(); r.Lost != 0 || r.Duplicated != 0 || r.Refused != 0 || r.SendErrors != 0 || r.Foreign != 0 || r.Received == 0 {
			t.Errorf("the honest UDP flow %d was disturbed: %+v", i, r)
		}
	}
}

// overseeUntil demands, until ctx ends, that agents stay ready and tables within their bounds.
func (f *fuzzing) overseeUntil(ctx context.Context) {
	f.T.Helper()
	var maps *bpfmaps.Maps
	if !testcluster.IPTables() {
		maps = f.Agent(0).Maps()
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for i := range 2 {
			if a, err := f.Agent(i).Ask("status"); err != nil || !a.Status.Ready || a.Status.Failed > 0 {
				f.T.Errorf("under attack the agent of node %d is not ready: %+v, %v", i, a, err)
			}
		}
		if maps != nil {
			f.withinBounds(maps)
		}
	}
}

// withinBounds demands of the tables that no attack fills them.
func (f *fuzzing) withinBounds(maps *bpfmaps.Maps) {
	f.T.Helper()
	use, err := maps.Flows.Use(context.Background())
	if err != nil {
		f.T.Error(err)
	}
	for name, u := range use {
		if u.Entries >= u.Max {
			f.T.Errorf("under attack the map %s is full: %d of %d", name, u.Entries, u.Max)
		}
	}
}
