package model

// StagedAction says what would become of the enforced policies if a staged policy were enforced. The values are those of
// the field stagedAction.
type StagedAction uint8

const (
	StagedSet    StagedAction = iota // the policy would be there, in place of an enforced one that PolicyKey.Enforced names
	StagedDelete                     // the enforced policy that PolicyKey.Enforced names would be gone; there are no rules
	StagedLearn                      // as StagedSet; the policy was proposed by a tool, and no human has looked at it yet
	StagedIgnore                     // nothing would change: the proposal was rejected
)

// String returns the action as the API spells it.
func (a StagedAction) String() string {
	switch a {
	case StagedDelete:
		return "Delete"
	case StagedLearn:
		return "Learn"
	case StagedIgnore:
		return "Ignore"
	}
	return "Set"
}

// Staging names the staged policy that stands for a policy, whether there is one or not. Not ok: no staged kind stands for its kind.
func (k PolicyKey) Staging() (staging PolicyKey, ok bool) {
	switch k.Kind {
	case KindNetworkPolicy:
		k.Kind = KindStagedNetworkPolicy
	case KindGlobalNetworkPolicy:
		k.Kind = KindStagedGlobalNetworkPolicy
	case KindKubernetesNetworkPolicy:
		k.Kind = KindStagedKubernetesNetworkPolicy
	default:
		return PolicyKey{}, false
	}
	return k, true
}

// Enforced names the policy that a staged policy stands for, whether there is one or not: the enforced kind, the same
// namespace and name. Of a policy that is not of a staged kind it is the policy itself.
func (k PolicyKey) Enforced() PolicyKey {
	switch k.Kind {
	case KindStagedNetworkPolicy:
		k.Kind = KindNetworkPolicy
	case KindStagedGlobalNetworkPolicy:
		k.Kind = KindGlobalNetworkPolicy
	case KindStagedKubernetesNetworkPolicy:
		k.Kind = KindKubernetesNetworkPolicy
	}
	return k
}
