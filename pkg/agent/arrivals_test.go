package agent

import (
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

func TestAChangeWaitsFromTheSourceUntilItIsEnforced(t *testing.T) {
	a := newArrivals("n")
	a.note([]model.Update{pod(1)}, at(0))
	a.take()
	if _, ok := a.enforced(at(5)); ok {
		t.Error("the first snapshot was measured")
	}
	a.note([]model.Update{model.InSync{}, pod(2)}, at(10))
	a.note([]model.Update{pod(3)}, at(20))
	a.take()
	a.note([]model.Update{pod(4)}, at(30)) // while the others are being enforced
	if waited, ok := a.enforced(at(35)); !ok || waited != 25*time.Millisecond {
		t.Errorf("the oldest change waited %v, %v, want 25ms", waited, ok)
	}
	if _, ok := a.enforced(at(36)); ok {
		t.Error("a change that was not taken counted as enforced")
	}
	a.take()
	a.note([]model.Update{pod(5)}, at(40))
	a.take() // after a failed attempt: the older one counts
	if waited, _ := a.enforced(at(50)); waited != 20*time.Millisecond {
		t.Errorf("after a failure the oldest change waited %v, want 20ms", waited)
	}
}

func TestAPodWaitsFromItsAddressUntilItsPolicyIsEnforced(t *testing.T) {
	a := newArrivals("n")
	remote := pod(9)
	remote.Endpoint.Node = "elsewhere"
	a.note([]model.Update{pod(1), model.InSync{}}, at(0))
	a.note([]model.Update{pod(2), pod(3), remote, pod(1)}, at(10))
	a.note([]model.Update{pod(2)}, at(20)) // a change of a pod that waits already
	a.note([]model.Update{model.EndpointUpdate{ID: podID(3)}}, at(25))
	states := append(enforcedPods(1, 3, 9), dataplane.EndpointStatus{ID: podID(2)})
	if got := a.pods(states, at(30)); got != nil {
		t.Errorf("measured %v though the one pod that is new is not enforced", got)
	}
	if got := a.pods(enforcedPods(1, 2), at(40)); !slices.Equal(got, []time.Duration{30 * time.Millisecond}) {
		t.Errorf("waited %v, want 30ms", got)
	}
	if got := a.pods(enforcedPods(1, 2), at(50)); got != nil {
		t.Errorf("measured %v a second time", got)
	}
	a.note([]model.Update{model.EndpointUpdate{ID: podID(2)}, pod(2)}, at(60)) // made again
	if got := a.pods(enforcedPods(1, 2), at(61)); !slices.Equal(got, []time.Duration{time.Millisecond}) {
		t.Errorf("a pod that was made again waited %v, want 1ms", got)
	}
}
