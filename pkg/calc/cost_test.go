package calc

import (
	"fmt"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// A ServiceAccount that has very many labels costs about the same with 1,000 pods that differ as with one. Before, each of its labels
// was looked at for each of these pods, and one write of 500 KB delayed all other changes for 5 s.
func TestLabelsOfAServiceAccountCostNothingForEachPod(t *testing.T) {
	const labels, many, most = 5000, 1000, 20
	account := func(value string) model.ProfileUpdate {
		m := map[string]string{}
		for i := range labels {
			m[fmt.Sprint("pcsa.label-", i)] = value
		}
		return model.ProfileUpdate{Name: "ksa.evil.a", Profile: &model.Profile{Labels: m}}
	}
	cost := func(pods int) time.Duration {
		g, dp := New(thisNode), newDataplane()
		updates := []model.Update{account("1"), model.InSync{}}
		for i := range pods {
			u := pod("evil/p", fmt.Sprintf("10.1.%d.%d", i>>8, i&255), on("node-2"))
			u.ID.Name = fmt.Sprint("p", i)
			u.Endpoint.Labels = map[string]string{"app": fmt.Sprint(i)}
			u.Endpoint.Profiles = []string{"kns.evil", "ksa.evil.a"}
			updates = append(updates, u)
		}
		flushed(t, g, dp, updates...)
		n := 0
		return testutil.LeastCPUTime(t, func() {
			n++
			flushed(t, g, dp, account(fmt.Sprint("of-", n)))
		})
	}
	one, all := cost(1), cost(many)
	t.Logf("one pod: %s, %d: %s", one, many, all)
	if all > most*one {
		t.Errorf("a change of the labels costs %s with %d pods and %s with one", all, many, one)
	}
}
