package calico

import (
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// Kinds of staged policies, as validate.Ref has them.
const (
	refStagedNetworkPolicy           = "StagedNetworkPolicy"
	refStagedGlobalNetworkPolicy     = "StagedGlobalNetworkPolicy"
	refStagedKubernetesNetworkPolicy = "StagedKubernetesNetworkPolicy"
)

// ConvertStagedNetworkPolicy returns a StagedNetworkPolicy.
func ConvertStagedNetworkPolicy(o *StagedNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, refStagedNetworkPolicy)
	c.namespaced, c.converted = true, strings.HasPrefix(o.Name, convertedPolicy)
	update := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedNetworkPolicy, Namespace: o.Namespace, Name: o.Name}}
	spec := required(c.Report, o.Spec)
	action := c.stagedAction(spec.StagedAction)
	if action == model.StagedDelete {
		c.deletes(hasSpec(&spec.PolicySpec))
		return c.finish(update, deletion(inNamespace(o.Namespace)))
	}
	p := c.policy(o.Name, &spec.PolicySpec)
	p.Selector = selector.And(inNamespace(o.Namespace), p.Selector)
	return c.finish(update, staged(p, action))
}

// ConvertStagedGlobalNetworkPolicy returns a StagedGlobalNetworkPolicy.
func ConvertStagedGlobalNetworkPolicy(o *StagedGlobalNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, refStagedGlobalNetworkPolicy)
	update := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedGlobalNetworkPolicy, Name: o.Name}}
	spec := required(c.Report, o.Spec)
	action := c.stagedAction(spec.StagedAction)
	if action == model.StagedDelete {
		s := &spec.GlobalSpec
		c.deletes(hasSpec(&s.PolicySpec) || s.NamespaceSelector != "" || s.DoNotTrack || s.PreDNAT || s.ApplyOnForward)
		return c.finish(update, deletion(selector.All()))
	}
	return c.finish(update, staged(c.globalPolicy(o.Name, &spec.GlobalSpec), action))
}

// ConvertStagedKubernetesNetworkPolicy returns a StagedKubernetesNetworkPolicy: a Kubernetes NetworkPolicy that is staged.
func ConvertStagedKubernetesNetworkPolicy(o *StagedKubernetesNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	c := newConversion(&o.Object, refStagedKubernetesNetworkPolicy)
	update := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedKubernetesNetworkPolicy, Namespace: o.Namespace, Name: o.Name}}
	given := required(c.Report, o.Spec)
	spec, action := &given.NetworkPolicySpec, c.stagedAction(given.StagedAction)
	if action == model.StagedDelete {
		c.deletes(len(spec.PodSelector.MatchLabels)+len(spec.PodSelector.MatchExpressions)+len(spec.Ingress)+len(spec.Egress) > 0)
		return c.finish(update, deletion(inNamespace(o.Namespace)))
	}
	np := &networkingv1.NetworkPolicy{ObjectMeta: o.ObjectMeta, Spec: *spec}
	convert := validate.NetworkPolicy
	if c.stored {
		convert = func(np *networkingv1.NetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
			return validate.NetworkPolicyStored(np, c.unknown)
		}
	}
	enforced, problems, ok := convert(np)
	for _, p := range problems {
		c.Add(p.Severity, p.Field, "%s", p.Reason)
	}
	if !ok {
		return update, c.Done(), false
	}
	if c.OK() { // what is not known has closed it already
		update.Policy = staged(enforced.Policy, action)
	}
	return update, c.Done(), c.OK()
}

// stagedAction reads a stagedAction, which is Set if it is absent.
func (c *conversion) stagedAction(text string) model.StagedAction {
	for _, a := range []model.StagedAction{model.StagedSet, model.StagedDelete, model.StagedLearn, model.StagedIgnore} {
		if text == a.String() {
			return a
		}
	}
	if text != "" {
		c.reject("spec.stagedAction", "%q must be Set, Delete, Learn or Ignore", text)
	}
	return model.StagedSet
}

// staged makes a staged policy of one that would be enforced. Nil stays nil: it would be none.
func staged(p *model.Policy, action model.StagedAction) *model.Policy {
	if p != nil {
		p.Staged, p.StagedAction = true, action
	}
	return p
}

// deletion is a staged policy that would take an enforced one away, wherever that applies. It judges nothing, in no direction, so
// its tier and order mean nothing.
func deletion(s *selector.Selector) *model.Policy {
	return staged(&model.Policy{Tier: model.TierDefault, Order: model.NoOrder, Selector: s}, model.StagedDelete)
}

// deletes checks that a policy whose action is Delete says nothing else. Its tier and types, which servers fill in, do no
// harm.
func (c *conversion) deletes(hasMore bool) {
	if hasMore {
		c.reject("spec", "with stagedAction Delete the spec must say nothing but the tier")
	}
}

func hasSpec(s *PolicySpec) bool {
	return s.Order != nil || s.Selector != "" || s.ServiceAccountSelector != "" || len(s.Ingress)+len(s.Egress)+len(s.PerformanceHints) > 0
}
