package agent

import (
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// A row has the policies that are desired, so it says so while they are not in force: whoever reads a row without an error can count on the
// next packet.
func TestAPodWhosePolicyIsNotWrittenYetIsNotWell(t *testing.T) {
	g := calc.New("n1")
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop)) {
		g.Apply(doc.Updates)
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	id := model.WorkloadID("shop", "web")
	const waits = "its policy is still to be written to the kernel; until then the former one is in force"
	for want, status := range map[string]dataplane.EndpointStatus{
		"":                   {ID: id, Condition: dataplane.Enforced},
		waits:                {ID: id, Condition: dataplane.Pending},
		"large":              {ID: id, Condition: dataplane.Pending, Reason: "large"},
		"not programmed yet": {ID: model.WorkloadID("shop", "other")},
	} {
		rows := endpointRows(g, []dataplane.EndpointStatus{status}, plane{})
		if len(rows) != 2 || rows[1].Name != "web" || rows[1].Error != want {
			t.Errorf("rows %+v, want web with error %q", rows, want)
		}
	}
}
