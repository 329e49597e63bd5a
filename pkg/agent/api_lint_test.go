package agent

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
)

// An agent reports of its own endpoints that their policy is refused. Lint does not repeat it, nor for pods of other nodes.
func TestLintOfAnAgentIsAboutPolicies(t *testing.T) {
	key := model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "shop", Name: "db"}
	got := lintRows([]lint.Finding{
		{Rule: -1, Endpoint: model.WorkloadID("shop", "db"), Text: "refused"},
		{Rule: -1, Policy: key, Text: "selects no pod"},
	})
	if len(got) != 1 || got[0].Reason != "selects no pod" {
		t.Errorf("got %+v", got)
	}
}

func TestLintOfAnAgentSaysWhatItHasLeftOut(t *testing.T) {
	got := unlinted([]model.PolicyKey{{Namespace: "evil", Name: "a"}, {Name: "b"}, {Namespace: "evil", Name: "c"}})
	if len(got) != 2 || got[0].Object != "policies" || got[1].Object != "policies evil" || got[1].Namespace != "evil" || !strings.HasPrefix(got[1].Reason, "2 have too many rules") {
		t.Errorf("got %+v", got)
	}
}
