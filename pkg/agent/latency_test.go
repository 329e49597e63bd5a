package agent

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

func at(ms int) time.Time { return time.UnixMilli(int64(ms)) }

func enforcedPods(is ...int) (states []dataplane.EndpointStatus) {
	for _, i := range is {
		states = append(states, dataplane.EndpointStatus{ID: podID(i), Condition: dataplane.Enforced})
	}
	return states
}

// measured is what a latency measures since it was asked last.
type measured struct{ changes, pods []time.Duration }

func (m *measured) ChangeEnforced(waited time.Duration) { m.changes = append(m.changes, waited) }
func (m *measured) PodEnforced(waited time.Duration)    { m.pods = append(m.pods, waited) }

func (m *measured) want(t *testing.T, when string, changes, pods []int) {
	t.Helper()
	in := func(ms []int) (all []time.Duration) {
		for _, n := range ms {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	slices.Sort(m.pods)
	if !slices.Equal(m.changes, in(changes)) || !slices.Equal(m.pods, in(pods)) {
		t.Errorf("%s: changes waited %v, pods %v; want %v and %v ms", when, m.changes, m.pods, changes, pods)
	}
	*m = measured{}
}

// tried is a pass that drained a batch and ended an attempt.
func tried(b Batch, ms int, err error, states ...dataplane.EndpointStatus) Outcome {
	return Outcome{Batch: b, Ended: at(ms), Flush: &Flush{}, Apply: &Attempt{Err: err}, States: states}
}

func TestAChangeWaitsFromTheSourceUntilItIsEnforced(t *testing.T) {
	var got measured
	in, l := newInbox("n"), newLatency(&got)
	in.put([]model.Update{pod(1)}, at(0))
	l.Observe(Outcome{Batch: in.drain(1), Ended: at(5), Flush: &Flush{}})
	got.want(t, "the first snapshot", nil, nil)
	in.put([]model.Update{model.InSync{}, pod(2)}, at(10))
	in.put([]model.Update{pod(3)}, at(20))
	drained := in.drain(batchSize)
	in.put([]model.Update{pod(4)}, at(30)) // while the others are being enforced
	l.Observe(tried(drained, 35, nil))
	got.want(t, "the oldest of a batch", []int{25}, nil)
	l.Observe(tried(Batch{}, 36, nil))
	got.want(t, "what is not drained", nil, nil)
	l.Observe(tried(in.drain(batchSize), 40, errors.New("no memory")))
	in.put([]model.Update{pod(5)}, at(45))
	l.Observe(Outcome{Batch: in.drain(batchSize), Ended: at(50)}) // which is held up
	got.want(t, "what is not enforced", nil, nil)
	l.Observe(Outcome{Ended: at(55), Flush: &Flush{}}) // and turns out to be none for this node
	got.want(t, "after a failure the older one counts", []int{25}, nil)
}

func TestWhatABatchLeavesBehindStillWaits(t *testing.T) {
	in := newInbox("n")
	in.put([]model.Update{model.InSync{}}, at(0))
	in.drain(batchSize)
	in.put([]model.Update{pod(1), pod(2)}, at(10))
	for i := range 2 {
		b := in.drain(1)
		if since, ok := b.Pods[podID(i+1)]; len(b.Pods) != 1 || !ok || since != at(10) || b.Since != at(10) {
			t.Errorf("batch %d: %+v", i, b)
		}
	}
	if b := in.drain(1); len(b.Updates) != 0 || !b.Since.IsZero() {
		t.Errorf("an empty batch: %+v", b)
	}
}

func TestAPodWaitsFromItsAddressUntilItsPolicyIsEnforced(t *testing.T) {
	var got measured
	in, l := newInbox("n"), newLatency(&got)
	remote := pod(9)
	remote.Endpoint.Node = "elsewhere"
	in.put([]model.Update{pod(1), model.InSync{}}, at(0))
	l.Observe(tried(in.drain(batchSize), 5, nil, enforcedPods(1)...))
	got.want(t, "the first snapshot", []int{5}, nil)
	in.put([]model.Update{pod(2), pod(3), remote, pod(1)}, at(10))
	in.put([]model.Update{pod(2)}, at(20)) // a change of a pod that waits already
	l.Observe(Outcome{Batch: in.drain(batchSize), Ended: at(22)})
	in.put([]model.Update{model.EndpointUpdate{ID: podID(3)}}, at(25))
	waiting := dataplane.EndpointStatus{ID: podID(2)}
	l.Observe(tried(in.drain(batchSize), 30, nil, append(enforcedPods(1), waiting)...))
	got.want(t, "the one pod that is new is not enforced", []int{20}, nil)
	l.Observe(tried(Batch{}, 40, nil, enforcedPods(1, 2)...))
	got.want(t, "it is", nil, []int{30})
	in.put([]model.Update{pod(2)}, at(42))
	l.Observe(tried(in.drain(batchSize), 50, nil, enforcedPods(1, 2)...))
	got.want(t, "a change of it", []int{8}, nil)
	in.put([]model.Update{model.EndpointUpdate{ID: podID(2)}}, at(55))
	l.Observe(tried(in.drain(batchSize), 56, nil, enforcedPods(1)...))
	in.put([]model.Update{pod(2), pod(3)}, at(60))
	l.Observe(tried(in.drain(batchSize), 61, errors.New("no memory"), enforcedPods(1, 2)...))
	l.Observe(tried(Batch{}, 70, nil, enforcedPods(1, 2, 3)...))
	got.want(t, "made again, and made again after a failure", []int{1, 10}, []int{1, 10})
}
