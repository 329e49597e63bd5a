package agent

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// What a tenant's policy can bring about is said, and tried again if that may help, but takes no agent out of service.
func TestAnEndpointHeldBackLeavesTheAgentReady(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		held := &dataplane.HeldBack{Err: errors.New("ingress of endpoint evil/m is closed: over the limit")}
		r.dp.Set(dataplane.FakeSettings{Held: held})
		r.put(pod(1), model.InSync{})
		s := r.Status()
		if !s.Ready || !s.InSync || s.Error != "" || s.Failed != 0 || !strings.Contains(s.Held, "evil/m") || !r.health.Ready() {
			t.Errorf("status %+v, components %+v", s, r.health.Components())
		}
		if n := strings.Count(r.log.String(), "evil/m"); n != 1 {
			t.Errorf("the log names the endpoint %d times:\n%s", n, &r.log)
		}
		before := r.dp.State().Applies
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.dp.State().Applies - before; n != 0 {
			t.Errorf("%d attempts at what only a change can mend", n)
		}
		r.dp.Set(dataplane.FakeSettings{Held: &dataplane.HeldBack{Err: held.Err, Retry: true}})
		r.put(pod(2))
		r.put(model.EndpointUpdate{ID: model.WorkloadID("t", "elsewhere"), Endpoint: &model.Endpoint{Node: "other"}})
		before = r.dp.State().Applies
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := r.dp.State().Applies - before; n < 5 || n > 15 {
			t.Errorf("%d attempts in a minute at what may succeed by itself", n)
		}
		r.dp.Set(dataplane.FakeSettings{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := r.Status(); s.Held != "" || !s.Ready {
			t.Errorf("status %+v afterwards", s)
		}
		r.wantEnforced(t, 2)
	})
}
