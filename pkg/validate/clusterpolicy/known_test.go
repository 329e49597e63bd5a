package clusterpolicy_test

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// A Namespace that is not known yet may have the label that a peer excludes: an Accept or a Pass of it would be too wide.
func TestOnlyDenyRulesMatchPodsOfUnknownNamespacesByLabelsThatAreAbsent(t *testing.T) {
	const namespace, label = validate.LabelNamespace, validate.PrefixNamespace
	unknown := selector.Map{validate.LabelOrchestrator: validate.OrchestratorK8s, namespace: "red", "app": "web"}
	known := selector.Map{validate.LabelOrchestrator: validate.OrchestratorK8s, namespace: "red", "app": "web",
		label + "kubernetes.io/metadata.name": "red"}
	for peer, negative := range map[string]bool{
		"namespaces: {matchExpressions: [{key: team, operator: DoesNotExist}]}":                                                        true,
		"namespaces: {matchExpressions: [{key: team, operator: NotIn, values: [a]}]}":                                                  true,
		"pods: {namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}, podSelector: {matchLabels: {app: web}}}": true,
		"namespaces: {}": false,
		"pods: {namespaceSelector: {}, podSelector: {}}": false,
	} {
		for _, action := range []string{"Accept", "Pass", "Deny"} {
			p := policyOf(t, parse(t, admin(fmt.Sprintf("ingress: [{action: %s, from: [{%s}]}]", action, peer))))
			s := p.Ingress[0].Source.Selector
			if want := !negative || action == "Deny"; s.Matches(unknown) != want {
				t.Errorf("%s from %s: %s matches a pod of an unknown Namespace: %v, want %v", action, peer, s, !want, want)
			}
			if !s.Matches(known) {
				t.Errorf("%s from %s: %s does not match a pod of a Namespace without labels", action, peer, s)
			}
		}
		p := policyOf(t, parse(t, manifest("tier: Admin, priority: 10, subject: {"+peer+"},\ningress: [{action: Deny, from: [{namespaces: {}}]}]")))
		if !p.Selector.Matches(unknown) {
			t.Errorf("subject %s: %s does not match a pod of an unknown Namespace", peer, p.Selector)
		}
	}
}
