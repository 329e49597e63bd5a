package clusterpolicy

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Kind is the kind's name in manifests.
const Kind = "ClusterNetworkPolicy"

// Convert returns the policy that an object of a cluster means. It is rejected if its tier or subject cannot be used.
// A rule that cannot be converted is reported and fails closed: it denies everything in its direction if its action is
// Deny or Pass, and matches nothing if it is Accept.
func Convert(o *v1alpha2.ClusterNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	return ConvertStored(o, nil)
}

// ConvertStored is Convert for an object that has fields which are not known here, at these paths; an empty path stands for
// fields anywhere in it. A rule with such a field fails closed. If it belongs to no rule, every rule of the policy does.
func ConvertStored(o *v1alpha2.ClusterNetworkPolicy, unknown []string) (model.PolicyUpdate, []validate.Problem, bool) {
	return convert(o, unknown, true)
}

// convert converts an object, a manifest or one that an API server has stored.
func convert(o *v1alpha2.ClusterNetworkPolicy, unknown []string, stored bool) (model.PolicyUpdate, []validate.Problem, bool) {
	update := model.PolicyUpdate{Key: key(o)}
	rep := validate.NewReport(validate.Ref{Kind: Kind, Name: o.Name})
	c := &conversion{Report: rep, unknown: unknown, stored: stored}
	policy := c.policy(&o.Spec)
	if !rep.OK() {
		return update, rep.Done(), false
	}
	update.Policy = policy
	return update, rep.Done(), true
}

func key(o *v1alpha2.ClusterNetworkPolicy) model.PolicyKey {
	return model.PolicyKey{Kind: model.KindKubernetesClusterNetworkPolicy, Name: o.Name}
}

// conversion turns the spec of one object into a policy, and reports the parts that it cannot convert.
type conversion struct {
	*validate.Report
	unknown []string // fields that are not known, by their paths
	stored  bool     // the object is no manifest
	warned  bool     // of a value in a label selector
}

// checkSelector is validate.CheckLabelSelector. A stored selector may have values that no label can have: the CRD does not check them,
// and it is known what they select. The first one in an object is reported.
func (c *conversion) checkSelector(ls *metav1.LabelSelector, path *field.Path) field.ErrorList {
	errs := validate.CheckLabelSelector(ls, path)
	if !c.stored {
		return errs
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		isValue := validate.IsLabelValue(err)
		if isValue && !c.warned {
			c.warned = true
			c.WarnOfLabelValue(err)
		}
		return isValue
	})
}

// checkSelectors returns the errors for which label selectors cannot be used.
type checkSelectors func(*metav1.LabelSelector, *field.Path) field.ErrorList

func (c *conversion) policy(spec *v1alpha2.ClusterNetworkPolicySpec) *model.Policy {
	path := field.NewPath("spec")
	p := &model.Policy{
		Tier:           c.tier(spec.Tier, path.Child("tier")),
		Order:          float64(spec.Priority),
		AppliesIngress: len(spec.Ingress) > 0,
		AppliesEgress:  len(spec.Egress) > 0,
	}
	subject := peer{namespaces: spec.Subject.Namespaces, pods: spec.Subject.Pods}
	pods, failure := subject.selector(path.Child("subject"), false, c.checkSelector)
	if failure != nil {
		c.Add(validate.Rejected, failure.Field, "%s", failure.ErrorBody())
		return nil
	}
	p.Selector = pods
	for i := range spec.Ingress {
		p.Ingress = append(p.Ingress, c.rules(ingressRule(&spec.Ingress[i], i))...)
	}
	for i := range spec.Egress {
		p.Egress = append(p.Egress, c.rules(egressRule(&spec.Egress[i], i))...)
	}
	return p
}

func (c *conversion) tier(t v1alpha2.Tier, path *field.Path) string {
	switch t {
	case v1alpha2.AdminTier:
		return model.TierKubeAdmin
	case v1alpha2.BaselineTier:
		return model.TierKubeBaseline
	}
	err := field.NotSupported(path, t, tiers)
	c.Add(validate.Rejected, err.Field, "%s", err.ErrorBody())
	return ""
}

// rules returns the model's rules for one rule of the API: one for each peer and group of protocols.
func (c *conversion) rules(r rule) []model.Rule {
	action, ok := r.modelAction()
	if !ok {
		// It may be one that denies.
		err := field.NotSupported(r.path.Child("action"), r.action, actions)
		c.Add(validate.RulesLeftOut, err.Field, "%s; the rule denies all %s", err.ErrorBody(), r.dir)
		return []model.Rule{r.modelRule(model.Deny)}
	}
	remotes, failure := r.remotes(c.checkSelector)
	var groups []portGroup
	if failure == nil {
		groups, failure = r.groups()
	}
	if failure == nil {
		failure = c.unknownField(r)
	}
	if failure != nil {
		return c.failClosed(r, action, failure)
	}
	rules := make([]model.Rule, 0, len(remotes)*len(groups))
	for _, remote := range remotes {
		for _, g := range groups {
			m := r.modelRule(action)
			m.Protocol = g.protocol
			if r.dir == model.Ingress {
				m.Source = remote
			} else {
				m.Destination = remote
			}
			m.Destination.Ports, m.Destination.NamedPorts = g.numbers, g.names
			rules = append(rules, m)
		}
	}
	return rules
}

// unknownField is the failure of a rule that has a field which is not known, or whose policy has one outside of its rules.
// Nil: it has none.
func (c *conversion) unknownField(r rule) *field.Error {
	for _, path := range c.unknown {
		inRule := strings.HasPrefix(path, "spec.ingress[") || strings.HasPrefix(path, "spec.egress[")
		if !inRule || strings.HasPrefix(path, r.path.String()+".") {
			return &field.Error{Type: field.ErrorTypeForbidden, Field: path, Detail: "unknown field"}
		}
	}
	return nil
}

// failClosed returns the rules that replace a rule which cannot be converted. The API requires this: such a rule may be
// of a newer version of the API, and the traffic that it is meant to deny must not pass.
func (c *conversion) failClosed(r rule, action model.Action, failure *field.Error) []model.Rule {
	m := r.modelRule(action)
	if action == model.Allow {
		c.Add(validate.RulesLeftOut, failure.Field, "%s; the rule accepts nothing", failure.ErrorBody())
		m.Unmatchable = failure.Field + ": " + failure.ErrorBody()
		return []model.Rule{m}
	}
	c.Add(validate.RulesLeftOut, failure.Field, "%s; the rule denies all %s, because its action is %s",
		failure.ErrorBody(), r.dir, r.action)
	m.Action = model.Deny
	return []model.Rule{m}
}
