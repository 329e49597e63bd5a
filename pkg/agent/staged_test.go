package agent

import (
	"testing"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
)

// A staged policy is shown as evaluated only after its present rules have been compiled: the next flow is counted by them.
func TestStagedPoliciesThatAreNotCompiledYetAreNotEvaluated(t *testing.T) {
	g := calc.New("n1")
	for _, doc := range kinds.Parse("shop.yaml", []byte(shop+`---
apiVersion: projectcalico.org/v3
kind: StagedNetworkPolicy
metadata: {name: draft, namespace: shop}
spec: {selector: app == 'web', types: [Ingress], ingress: [{action: Deny}]}
`)) {
		g.Apply(doc.Updates)
	}
	g.Apply([]model.Update{model.InSync{}})
	g.Flush()
	id := model.WorkloadID("shop", "web")
	for want, status := range map[string]dataplane.EndpointStatus{
		"":                                  {ID: id},
		"shop/web: they are being compiled": {ID: id, StagedPending: true},
		"shop/web: too many":                {ID: id, StagedPending: true, Staged: "too many"},
	} {
		rows := stagedOf(g, []dataplane.EndpointStatus{status}, nil).list(nil)
		if len(rows) != 1 || rows[0].NotEvaluated != want {
			t.Errorf("rows %+v, want one that is not evaluated for: %q", rows, want)
		}
	}
}
