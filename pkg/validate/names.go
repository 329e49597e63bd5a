package validate

import (
	"strings"

	"github.com/margay-project/margay/pkg/selector"
)

// Labels that endpoints and profiles carry besides those users gave to their objects (semantics §10).
const (
	LabelNamespace      = "projectcalico.org/namespace"
	LabelOrchestrator   = "projectcalico.org/orchestrator"
	LabelServiceAccount = "projectcalico.org/serviceaccount"
	LabelName           = "projectcalico.org/name"

	OrchestratorK8s = "k8s"

	// Prefixes of the labels that an endpoint inherits from its namespace and from its service account.
	PrefixNamespace      = "pcns."
	PrefixServiceAccount = "pcsa."
)

// maxRuleName bounds what explain and logs show of a rule's name.
const maxRuleName = 100

// RuleName is the name that the author of a rule gave it as model.Rule has it: one line of bounded length.
func RuleName(text string) string {
	if len(text) > maxRuleName {
		text = strings.ToValidUTF8(text[:maxRuleName], "") + "..."
	}
	return selector.Printable(text)
}

// OwnLabels copies labels without those that look inherited, leaving room for more.
func OwnLabels(labels map[string]string, more int) map[string]string {
	own := make(map[string]string, len(labels)+more)
	for k, v := range labels {
		if !strings.HasPrefix(k, PrefixNamespace) && !strings.HasPrefix(k, PrefixServiceAccount) {
			own[k] = v
		}
	}
	return own
}

// inheritedLabels are what a profile gives on: the labels of an object under a prefix, and its name.
func inheritedLabels(prefix string, labels map[string]string, name string) map[string]string {
	inherited := make(map[string]string, len(labels)+1)
	for k, v := range labels {
		inherited[prefix+k] = v
	}
	inherited[prefix+LabelName] = name
	return inherited
}
