package syncer

import (
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// Which deletions wait for what is still to come, by the namespaces of that.
func TestDeletionsWaitForTheirNamespaceAndForClusterWideObjects(t *testing.T) {
	policy := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "a"}}
	pod := model.EndpointUpdate{ID: model.WorkloadID("shop", "a")}
	for name, tt := range map[string]struct {
		coming scopes
		of     model.Update
		want   bool
	}{
		"nothing is to come":        {nil, policy, false},
		"its own namespace":         {scopes{"shop": true}, policy, true},
		"policies of its namespace": {scopes{"shop": false}, policy, true},
		"another namespace":         {scopes{"dev": true}, policy, false},
		"cluster-wide objects":      {scopes{"": true}, policy, true},
		"cluster-wide policies":     {scopes{"": false}, policy, false},
		"a pod waits for nothing":   {scopes{"": true, "shop": true}, pod, false},
	} {
		if got := tt.coming.concern(tt.of, "shop"); got != tt.want {
			t.Errorf("%s: waits %v", name, got)
		}
	}
}
