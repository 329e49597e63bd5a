package validate

import (
	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
)

// ServiceAccount returns the profile ksa.<namespace>.<name> (semantics §13): pods that run as the account inherit its
// labels under "pcsa.". It has no rules.
func ServiceAccount(sa *corev1.ServiceAccount) (model.ProfileUpdate, []Problem, bool) {
	return model.ProfileUpdate{
		Name:    model.ServiceAccountProfile(sa.Namespace, sa.Name),
		Profile: &model.Profile{Labels: inheritedLabels(PrefixServiceAccount, sa.Labels, sa.Name)},
	}, nil, true
}
