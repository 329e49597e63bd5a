package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// one returns the outcome of the only pass since the last call.
func (r *rig) one(t *testing.T, when string) Outcome {
	t.Helper()
	list := r.passes.take()
	if len(list) != 1 {
		t.Fatalf("%s: %d passes, want 1", when, len(list))
	}
	return list[0]
}

func TestObserversGetWhatEachPassCameTo(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		synctest.Wait()
		r.passes.take()
		r.put(pod(1), pod(2), model.InSync{})
		o := r.one(t, "the first snapshot")
		if len(o.Batch.Updates) != 3 || !o.Batch.InSync || !o.Flush.First || len(o.Flush.Changes.Endpoints) != 2 || !o.Apply.First ||
			!o.Enforced() || !o.Status.Ready || len(o.States) != 2 || o.Facts == nil || len(o.Facts.Local) != 2 {
			t.Errorf("the first snapshot: %+v", o)
		}
		far := pod(3)
		far.Endpoint.Node = "elsewhere"
		r.put(far)
		if o := r.one(t, "a pod of another node"); o.Flush == nil || o.Apply != nil || !o.Enforced() || o.Facts != nil || o.Config != nil {
			t.Errorf("a pod of another node: %+v", o)
		}
		refused := errors.New("no memory")
		r.dp.Set(dataplane.FakeSettings{Failures: 1, ApplyErr: refused})
		r.put(pod(4))
		if o := r.one(t, "a failure"); o.Enforced() || o.Complete || !errors.Is(o.Apply.Err, refused) || o.Facts == nil || o.Status.Ready {
			t.Errorf("a failure: %+v", o)
		}
		time.Sleep(firstRetry)
		synctest.Wait()
		if o := r.one(t, "a retry"); !o.Apply.Retry || o.Apply.First || o.Apply.Err != nil || !o.Enforced() || len(o.Batch.Updates) != 0 {
			t.Errorf("a retry: %+v", o)
		}
		time.Sleep(lookEvery)
		synctest.Wait()
		sweeps, looks := 0, 0
		for _, o := range r.passes.take() {
			if o.Sweep != nil {
				sweeps++
			}
			if o.Facts != nil {
				looks++
			}
		}
		if sweeps != 1 || looks != 1 {
			t.Errorf("after a while %d sweeps and %d looks, want 1 and 1", sweeps, looks)
		}
	})
}

// Nothing of the configuration is looked at for the sake of pods and of other nodes.
func TestOnlyWhatConfiguresBringsUpTheConfiguration(t *testing.T) {
	run(t, func(t *testing.T, r *rig) {
		r.put(pod(1), model.InSync{})
		r.passes.take()
		r.put(pod(2), model.NodeUpdate{Name: "other", Node: &model.Node{}})
		if o := r.one(t, "a pod and another node"); o.Config != nil || o.Batch.Settings != nil {
			t.Errorf("a pod and another node: %+v", o.Config)
		}
		r.put(model.NodeUpdate{Name: "n", Node: &model.Node{}})
		if o := r.one(t, "this node"); o.Config == nil || o.Config.Applied.Effect != config.Unchanged {
			t.Errorf("this node: %+v", o.Config)
		}
		r.put(felix("logSeverityScreen", "Debug"))
		if o := r.one(t, "the log level"); o.Config == nil || o.Config.Applied.Effect != config.Live || o.Config.Desired.LogLevel != "debug" {
			t.Errorf("the log level: %+v", o.Config)
		}
		r.put(felix("defaultEndpointToHostAction", "Drop"))
		if o := r.one(t, "a reopening"); o.Config == nil || o.Config.Applied.Effect != config.Reopen || o.Reopen == nil || o.Reopen.Stuck {
			t.Errorf("a reopening: %+v", o)
		}
		r.dp.Set(dataplane.FakeSettings{ReopenErr: errors.New("no memory")})
		r.put(felix("defaultEndpointToHostAction", "Accept"))
		if o := r.one(t, "a refusal"); o.Config == nil || o.Config.Refused.Effect != config.Reopen || o.Reopen != nil || o.Config.Err == nil {
			t.Errorf("a refusal: %+v", o)
		}
	})
}
