package explain

import (
	"fmt"

	"github.com/margay-project/margay/pkg/model"
)

// reason describes in Kubernetes' words the rule or default that decided one side, and names its kind.
func reason(t *Trace, d model.Direction, of End) (decision, text string) {
	by := t.Verdict.By
	switch {
	case by.Point == model.AtEndOfTier:
		return DecisionEndOfTier, endOfTier(t, d, of)
	case by.Point == model.AtRule && by.Policy.Kind != model.KindProfile:
		text = fmt.Sprintf("by %s %s[%d]", by.Policy.ObjectText(), d, by.Index)
		if name := t.ruleName(); name != "" {
			text += fmt.Sprintf(" %q", name)
		}
		if !isKubernetes(by.Tier, by.Policy) {
			text += " in tier " + by.Policy.Kind.TierText(by.Tier)
		}
		return DecisionRule, text
	}
	return DecisionNoPolicy, noPolicy(t, d, of)
}

// ruleName is what its object calls the rule that decided: the last one considered. Empty: no rule did, or it has no name.
func (t *Trace) ruleName() string {
	if t.Verdict.By.Point != model.AtRule || len(t.Tiers) == 0 {
		return ""
	}
	policies := t.Tiers[len(t.Tiers)-1].Policies
	if len(policies) == 0 || len(policies[len(policies)-1].Rules) == 0 {
		return ""
	}
	rules := policies[len(policies)-1].Rules
	return rules[len(rules)-1].Name
}

// isKubernetes reports whether tiers need not be spoken of: the policy is of an API that has none.
func isKubernetes(tier string, key model.PolicyKey) bool {
	return tier == model.TierDefault && key.Kind == model.KindKubernetesNetworkPolicy
}

// endOfTier says why the end of a tier decided.
func endOfTier(t *Trace, d model.Direction, of End) string {
	by := t.Verdict.By
	var enforced []string
	kubernetes, rules := true, 0
	for _, p := range t.Tiers[len(t.Tiers)-1].Policies {
		if !p.Staged {
			enforced = append(enforced, p.Key.Namespace+"/"+p.Key.Name)
			kubernetes = kubernetes && isKubernetes(by.Tier, p.Key)
			rules += len(p.Rules)
		}
	}
	switch {
	case !kubernetes:
		return fmt.Sprintf("by the end of tier %s: no rule of it matches, and %s selects the pod", by.Tier, by.Policy.ObjectText())
	case len(enforced) == 1 && rules == 0:
		return fmt.Sprintf("%s selects %s and has no %s rules, which allows nothing", by.Policy.ObjectText(), of.name(), d)
	case len(enforced) == 1:
		return fmt.Sprintf("%s selects %s, and none of its %s rules matches", by.Policy.ObjectText(), of.name(), d)
	}
	return fmt.Sprintf("%d NetworkPolicies select %s (%s), and none of their %s rules matches",
		len(enforced), of.name(), shortened(enforced), d)
}

// noPolicy says why no policy decided, and names what decided instead.
func noPolicy(t *Trace, d model.Direction, of End) string {
	by, considered := t.Verdict.By, false
	for _, tier := range t.Tiers {
		for _, p := range tier.Policies {
			considered = considered || tier.Name != "" && !p.Staged
		}
	}
	text := fmt.Sprintf("no policy selects %s for %s", of.name(), d)
	if considered {
		text = "every tier passes the packet on"
	}
	if by.Point == model.AtNoProfile {
		return text + ", and nothing else allows it (does its Namespace exist?)"
	}
	if namespace, ok := model.NamespaceOfProfile(by.Policy.Name); ok {
		if considered {
			text += ", and Namespace " + namespace + " allows everything"
		}
		return text
	}
	return fmt.Sprintf("%s, and Profile %s %s[%d] decides", text, by.Policy.Name, d, by.Index)
}
