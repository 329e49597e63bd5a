package agent

import (
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
)

// Members that are late to leave stay while policy is being made, but not for long: it may never come into force.
func TestMembersThatAreLateStayWhilePolicyIsBeingMade(t *testing.T) {
	made := []dataplane.EndpointStatus{{Condition: dataplane.Enforced}, {Condition: dataplane.Held}, {Condition: dataplane.Failed}}
	making := append([]dataplane.EndpointStatus{{Condition: dataplane.Pending}}, made...)
	var p progress
	now := time.Now()
	for _, step := range []struct {
		after  time.Duration
		late   bool
		states []dataplane.EndpointStatus
		want   bool
	}{
		{0, false, making, false},
		{time.Second, true, making, true},
		{mostLate - 1, true, making, true},
		{1, true, making, false},
		{time.Second, false, making, false},
		{time.Second, true, making, true}, // others, later
		{time.Second, true, made, false},
	} {
		now = now.Add(step.after)
		if got := p.lingers(step.late, step.states, now); got != step.want {
			t.Errorf("%+v: they linger: %t", step, got)
		}
	}
}
