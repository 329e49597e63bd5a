package kinds_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// The values of matchExpressions that older API servers let pass (semantics §12).
func TestLabelValuesThatNoLabelHas(t *testing.T) {
	const value = `.matchExpressions[0].values[0]: Invalid value: "has space"`
	const expression = "{matchExpressions: [{key: app, operator: %s, values: ['has space']}]}"
	for _, operator := range []string{"In", "NotIn"} {
		odd := fmt.Sprintf(expression, operator)
		for name, test := range map[string]struct{ version, kind, spec, field string }{
			"a NetworkPolicy": {"networking.k8s.io/v1", "NetworkPolicy", "podSelector: " + odd + ", ingress: [{}]", "spec.podSelector"},
			"its peer":        {"networking.k8s.io/v1", "NetworkPolicy", "podSelector: {}, ingress: [{from: [{podSelector: " + odd + "}]}]", "spec.ingress[0].from[0].podSelector"},
			"a staged one":    {"projectcalico.org/v3", "StagedKubernetesNetworkPolicy", "podSelector: " + odd + ", ingress: [{}]", "spec.podSelector"},
			"a subject": {"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy",
				"tier: Admin, priority: 1, subject: {pods: {podSelector: " + odd + "}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]", "spec.subject.pods.podSelector"},
			"a peer of the cluster's": {"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy",
				"tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{pods: {podSelector: " + odd + "}}]}]", "spec.ingress[0].from[0].pods.podSelector"},
			"nodes": {"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy",
				"tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [{action: Deny, to: [{nodes: " + odd + "}]}]", "spec.egress[0].to[0].nodes"},
		} {
			p, problems := readStored(t, test.version, test.kind, "a", test.spec)
			if p == nil || len(problems) != 1 || !strings.HasPrefix(problems[0], "warning: "+test.field+value) || !strings.HasSuffix(problems[0], "; no label has this value") {
				t.Errorf("%s, %s: %v %q", name, operator, p, problems)
				continue
			}
			selected := p.Selector
			switch {
			case len(p.Ingress) == 1 && p.Ingress[0].Source.Selector != nil && strings.Contains(test.field, "ingress"):
				selected = p.Ingress[0].Source.Selector
			case len(p.Egress) == 1:
				selected = p.Egress[0].Destination.Nodes
			}
			db := selector.Map{"app": "db", validate.LabelNamespace: "shop", validate.LabelOrchestrator: validate.OrchestratorK8s}
			if selected.Matches(db) != (operator == "NotIn") {
				t.Errorf("%s, %s: %s", name, operator, selected)
			}
			d := manifest(test.version, test.kind, "a", test.spec)
			if len(d.Problems) != 1 || d.Problems[0].Severity == validate.Warning {
				t.Errorf("%s: a manifest: %v", name, d.Problems)
			}
		}
	}
	_, problems := readStored(t, "networking.k8s.io/v1", "NetworkPolicy", "a",
		"podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: Near, values: ['has space']}]}}]}]")
	if len(problems) != 1 || !strings.HasSuffix(problems[0], "the rule allows nothing") {
		t.Errorf("in a rule that is closed: %q", problems)
	}
}
