package agent

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// slow is a dataplane that takes its time to enforce.
type slow struct{ *dataplane.Fake }

func (s slow) Apply(ctx context.Context, ch model.Changes) error {
	time.Sleep(10 * time.Second)
	return s.Fake.Apply(ctx, ch)
}

// A question that comes while the first snapshot is being enforced is answered after it, and with nothing from before it: the
// interfaces would count as those of an earlier agent.
func TestAStatusIsOfOneMoment(t *testing.T) {
	runWith(t, func(dp *dataplane.Fake) dataplane.Dataplane { return slow{dp} }, func(t *testing.T, r *rig) {
		r.report(syncer.KindStatus{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true})
		r.put(pod(1), model.InSync{})
		api := &API{Loop: r.Loop, Health: r.health, Plane: plane{}, Reports: r.Reports(), Node: "n"}
		answers := make(chan inspect.Answer)
		go func() {
			answer, err := api.status(httptest.NewRequest("GET", "/v1/status", nil).WithContext(t.Context()))
			if err != nil {
				t.Error(err)
			}
			answers <- answer
		}()
		synctest.Wait()
		select {
		case answer := <-answers:
			t.Fatalf("answered in the middle of a pass: %+v", answer.Status)
		default:
		}
		s := (<-answers).Status
		if !s.InSync || !s.Ready || s.Inherited != 0 || s.Enforced != 1 || s.Attempts.Applies != 1 {
			t.Errorf("status %+v", s)
		}
	})
}
