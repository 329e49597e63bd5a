package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/dataplane"
)

// The first line about policy does not say that it is enforced where no pod has its interface: the prefix may be wrong.
func TestTheFirstAttemptIsLoggedAsWhatItIs(t *testing.T) {
	for want, conditions := range map[string][]dataplane.Condition{
		`"in sync: policy is enforced" `:                                                         {dataplane.Enforced},
		`"in sync: policy is enforced, but for pods that wait for their interfaces" `:            {dataplane.Enforced, dataplane.NoInterface},
		`"in sync: no policy is enforced yet, all pods of this node wait for their interfaces" `: {dataplane.NoInterface, dataplane.NoInterface},
	} {
		var out bytes.Buffer
		o := Outcome{Apply: &Attempt{First: true}, Facts: &Facts{}}
		for _, c := range conditions {
			o.States = append(o.States, dataplane.EndpointStatus{Condition: c})
		}
		newApplyLog(slog.New(slog.NewTextHandler(&out, nil)), true).Observe(o)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%v: %s, want %s", conditions, &out, want)
		}
	}
}
