package validate

import (
	"maps"

	"github.com/margay-project/margay/pkg/model"
	corev1 "k8s.io/api/core/v1"
)

// Namespace returns the profile kns.<name> (semantics §13): pods in the namespace inherit its labels under "pcns.", and
// allow everything that no policy decides. The label kubernetes.io/metadata.name is there even if the object lacks it,
// as on the API server.
func Namespace(ns *corev1.Namespace) (model.ProfileUpdate, []Problem, bool) {
	labels := maps.Clone(ns.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = ns.Name
	return model.ProfileUpdate{
		Name: model.NamespaceProfile(ns.Name),
		Profile: &model.Profile{
			Labels:  inheritedLabels(PrefixNamespace, labels, ns.Name),
			Ingress: []model.Rule{{Action: model.Allow}},
			Egress:  []model.Rule{{Action: model.Allow}},
		},
	}, nil, true
}
