package agent

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// An attempt that failed leaves endpoints with writes to be made, and the dataplane gives no reason for those. Whoever sees the new policies
// of such an endpoint is told that they are not in force.
func TestAnEndpointWithWritesToBeMadeIsNotSaidToBeAsItShould(t *testing.T) {
	g := calc.New("n1")
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop)) {
		g.Apply(doc.Updates)
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	id := g.LocalEndpoints()[0].ID
	for _, test := range []struct {
		condition dataplane.Condition
		reason    string
		want      string
	}{
		{dataplane.Enforced, "", ""},
		{dataplane.Pending, "", "is still to be written to the kernel"},
		{dataplane.Pending, "large", "large"},
		{dataplane.Failed, "no memory", "no memory"},
	} {
		states := []dataplane.EndpointStatus{{ID: id, Condition: test.condition, Reason: test.reason}}
		row := endpointRows(g, states, plane{})[0]
		texts := strings.Join(notEnforced(states, []model.EndpointID{id}), "\n")
		if (row.Error == "") != (test.want == "") || !strings.Contains(row.Error, test.want) || (texts == "") != (test.want == "") || !strings.Contains(texts, test.want) {
			t.Errorf("%v %q: error %q, not enforced %q, want %q", test.condition, test.reason, row.Error, texts, test.want)
		}
	}
}
