package calico

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// ConvertProfile returns a Profile. Its labels are inherited as they are: what stands for a namespace or a service account
// has its prefixes in it.
func ConvertProfile(o *Profile) (model.ProfileUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, "Profile")
	spec := required(c.Report, o.Spec)
	if o.Name == model.ProfileDefaultAllow {
		c.reject("metadata.name", "the profile %s is built in and cannot be changed", o.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(spec.LabelsToApply)) {
		at := "spec.labelsToApply[" + key + "]"
		for _, wrong := range validation.IsQualifiedName(key) {
			c.reject(at, "%s", wrong)
		}
		for _, wrong := range validation.IsValidLabelValue(spec.LabelsToApply[key]) {
			c.reject(at, "%s", wrong)
		}
	}
	p := &model.Profile{
		Labels:  spec.LabelsToApply,
		Ingress: c.rules(ingressRules, spec.Ingress, true),
		Egress:  c.rules(egressRules, spec.Egress, true),
	}
	if has, found := c.newerOutsideRules(); found && c.OK() {
		c.Add(validate.RulesLeftOut, has.path, "%s; the profile denies everything", has.what)
		p.Ingress, p.Egress = []model.Rule{{Action: model.Deny}}, []model.Rule{{Action: model.Deny}}
	}
	return model.ProfileUpdate{Name: o.Name, Profile: p}, c.Done(), c.OK()
}
