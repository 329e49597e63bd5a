package validate

import "strings"

// Labels that endpoints and profiles carry besides those users gave to their objects (semantics §10).
const (
	labelNamespace      = "projectcalico.org/namespace"
	labelOrchestrator   = "projectcalico.org/orchestrator"
	labelServiceAccount = "projectcalico.org/serviceaccount"
	labelName           = "projectcalico.org/name"

	orchestratorK8s = "k8s"

	// Prefixes of the labels that an endpoint inherits from its namespace and from its service account.
	prefixNamespace      = "pcns."
	prefixServiceAccount = "pcsa."
)

// ownLabels copies labels without those that look inherited, leaving room for more.
func ownLabels(labels map[string]string, more int) map[string]string {
	own := make(map[string]string, len(labels)+more)
	for k, v := range labels {
		if !strings.HasPrefix(k, prefixNamespace) && !strings.HasPrefix(k, prefixServiceAccount) {
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
	inherited[prefix+labelName] = name
	return inherited
}
