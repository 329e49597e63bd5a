package traffic_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab/echo"
)

func TestProberTellsRightFromWrong(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	open, denied := labtest.ListenTCP(t, serving.Host, 80), labtest.ListenTCP(t, serving.Host, 81)
	labtest.DropTo(t, n, 81)
	fast := traffic.ProberOptions{Interval: time.Millisecond, MaxInFlight: 4}
	p := labtest.Must[*traffic.Prober](t)(traffic.StartProber(client.Host, fast,
		traffic.Target{Addr: open.Addr4(), Allowed: true, Timeout: labtest.Soon},
		traffic.Target{Addr: open.Addr4(), Allowed: false, Timeout: labtest.Soon}, // a wrong one, so it must connect
		traffic.Target{Addr: denied.Addr4(), Allowed: true, Timeout: 50 * time.Millisecond},
		traffic.Target{Addr: denied.Addr4(), Allowed: false, Timeout: 50 * time.Millisecond},
	))
	testutil.WaitFor(t, labtest.Soon, "20 attempts on each", func() bool {
		for _, r := range p.Results() {
			if r.Attempts < 20 {
				return false
			}
		}
		return true
	})
	r := p.Stop()
	var accepted uint64
	for i, want := range []struct {
		outcome echo.Outcome
		wrong   bool
	}{{echo.Connected, false}, {echo.Connected, true}, {echo.Timeout, true}, {echo.Timeout, false}} {
		if d := cmp.Diff(map[echo.Outcome]uint64{want.outcome: r[i].Attempts}, r[i].Outcomes); d != "" {
			t.Errorf("target %d: %s", i, d)
		}
		wantWrong := uint64(0)
		if want.wrong {
			wantWrong = r[i].Attempts
		}
		if r[i].Wrong != wantWrong || (r[i].FirstWrong.Took > 0) != want.wrong {
			t.Errorf("target %d: %d wrong of %d, want %d; first %+v", i, r[i].Wrong, r[i].Attempts, wantWrong, r[i].FirstWrong)
		}
		accepted += r[i].Outcomes[echo.Connected]
	}
	if got := open.Accepted(); got != accepted {
		t.Errorf("server accepted %d connections, the prober counts %d", got, accepted)
	}
	if got := denied.Accepted(); got != 0 {
		t.Errorf("the denied server accepted %d connections", got)
	}
	if r[2].Skipped+r[3].Skipped == 0 {
		t.Error("no turn was skipped although timeouts fill all places")
	}
}

// The kernel sends a lost SYN again after a second: a connection that stood because of that was not allowed at first.
func TestProberCountsALostSYN(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	open := labtest.ListenTCP(t, serving.Host, 80)
	stop := labtest.DropTo(t, n, 80)
	p := labtest.Must[*traffic.Prober](t)(traffic.StartProber(client.Host, traffic.ProberOptions{Interval: time.Millisecond, MaxInFlight: 2},
		traffic.Target{Addr: open.Addr4(), Allowed: true}))
	testutil.WaitFor(t, labtest.Soon, "attempts whose SYN is lost", func() bool { return p.Results()[0].Skipped > 100 })
	stop()
	testutil.WaitFor(t, labtest.Soon, "attempts that are answered", func() bool { return p.Results()[0].Outcomes[echo.Connected] > 10 })
	r := p.Stop()[0]
	if lost := r.Outcomes[echo.Timeout]; lost == 0 || lost > 2 || r.Wrong != lost || r.FirstWrong.Retransmits == 0 {
		t.Errorf("%+v", r)
	}
}
