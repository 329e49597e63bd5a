package calico

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// fixedTier has the only values that an object of a built-in tier may have.
type fixedTier struct {
	order  float64
	action model.Action
}

var fixedTiers = map[string]fixedTier{
	model.TierKubeAdmin:    {model.OrderKubeAdmin, model.Pass},
	model.TierDefault:      {model.OrderDefaultTier, model.Deny},
	model.TierKubeBaseline: {model.OrderKubeBaseline, model.Pass},
}

// ConvertTier returns a Tier. Those that are built in cannot be changed: an object that says another order or default
// action is rejected (semantics §2).
func ConvertTier(o *Tier) (model.TierUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: "Tier", Name: o.Name})
	spec := required(rep, o.Spec)
	t := &model.Tier{Order: model.NoOrder, Default: model.Deny}
	if spec.Order != nil {
		t.Order = *spec.Order
	}
	if a := spec.DefaultAction; a != nil {
		switch *a {
		case "Deny":
		case "Pass":
			t.Default = model.Pass
		default:
			if _, fixed := fixedTiers[o.Name]; o.stored && *a != "" && !fixed {
				rep.Add(validate.RulesLeftOut, "spec.defaultAction", "%q is not known; the end of the tier denies", *a)
				break
			}
			rep.Add(validate.Rejected, "spec.defaultAction", "%q must be Deny or Pass", *a)
			return model.TierUpdate{Name: o.Name}, rep.Done(), false
		}
	}
	if fixed, ok := fixedTiers[o.Name]; ok {
		if spec.Order != nil && t.Order != fixed.order {
			rep.Add(validate.Rejected, "spec.order", "the tier %s is built in: its order is %.0f and cannot be changed", o.Name, fixed.order)
		}
		if t.Default != fixed.action {
			rep.Add(validate.Rejected, "spec.defaultAction", "the tier %s is built in: its default action is %s and cannot be changed", o.Name, fixed.action)
		}
	}
	usedWithout(rep, &o.Object, "tier")
	return model.TierUpdate{Name: o.Name, Tier: t}, rep.Done(), rep.OK()
}
