package validate

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NetworkPolicy returns a Kubernetes NetworkPolicy as a policy of the default tier (semantics §11). A policy that the
// API server would refuse is rejected, with one exception: an ipBlock that cannot be read costs the rule its peer, and
// nothing else (D-7).
func NetworkPolicy(np *networkingv1.NetworkPolicy) (model.PolicyUpdate, []Problem, bool) {
	update := model.PolicyUpdate{Key: model.PolicyKey{
		Kind: model.KindKubernetesNetworkPolicy, Namespace: np.Namespace, Name: np.Name,
	}}
	rep := Report{ref: Ref{Kind: "NetworkPolicy", Namespace: np.Namespace, Name: np.Name}}
	rep.Reject(checkNetworkPolicy(&np.Spec))
	c := policyConversion{Report: &rep, namespace: np.Namespace}
	if !rep.OK() {
		c.reportBlocks(&np.Spec)
		return update, rep.Done(), false
	}
	update.Policy = c.policy(&np.Spec)
	return update, rep.Done(), true
}

// policyConversion turns the spec of one valid NetworkPolicy into a policy.
type policyConversion struct {
	*Report
	namespace string
}

func (c policyConversion) policy(spec *networkingv1.NetworkPolicySpec) *model.Policy {
	p := &model.Policy{
		Tier:     model.TierDefault,
		Order:    model.OrderNetworkPolicy,
		Selector: c.podsInNamespace(LabelSelector(&spec.PodSelector)),
	}
	p.AppliesIngress, p.AppliesEgress = policyTypes(spec)
	path := field.NewPath("spec")
	switch {
	case p.AppliesIngress:
		for i, r := range spec.Ingress {
			at := path.Child("ingress").Index(i)
			p.Ingress = append(p.Ingress, c.rules(model.Ingress, i, r.From, r.Ports, at.Child("from"))...)
		}
	case len(spec.Ingress) > 0:
		c.Add(Warning, path.Child("ingress").String(), "the rules have no effect, because policyTypes does not contain Ingress")
	}
	switch {
	case p.AppliesEgress:
		for i, r := range spec.Egress {
			at := path.Child("egress").Index(i)
			p.Egress = append(p.Egress, c.rules(model.Egress, i, r.To, r.Ports, at.Child("to"))...)
		}
	case len(spec.Egress) > 0:
		c.Add(Warning, path.Child("egress").String(), "the rules have no effect, because policyTypes does not contain Egress")
	}
	return p
}

// policyTypes returns the directions the policy is about. Without policyTypes it is about ingress, and about egress if
// it has such rules.
func policyTypes(spec *networkingv1.NetworkPolicySpec) (ingress, egress bool) {
	if len(spec.PolicyTypes) == 0 {
		return true, len(spec.Egress) > 0
	}
	return slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

// rules converts one API rule: one rule per peer and protocol. No peers, or no ports, mean any.
func (c policyConversion) rules(dir model.Direction, index int, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort, path *field.Path) []model.Rule {
	remotes := []model.Entity{{}}
	if len(peers) > 0 {
		remotes = c.remotes(peers, path)
	}
	groups := groupPorts(ports)
	rules := make([]model.Rule, 0, len(remotes)*len(groups))
	for _, remote := range remotes {
		for _, g := range groups {
			r := model.Rule{Action: model.Allow, Index: index, Protocol: g.protocol}
			if dir == model.Ingress {
				r.Source = remote
			} else {
				r.Destination = remote
			}
			r.Destination.Ports, r.Destination.NamedPorts = g.numbers, g.names
			rules = append(rules, r)
		}
	}
	return rules
}

// remotes converts the peers that can be read.
func (c policyConversion) remotes(peers []networkingv1.NetworkPolicyPeer, path *field.Path) []model.Entity {
	var remotes []model.Entity
	for i := range peers {
		peer := &peers[i]
		if peer.IPBlock == nil {
			remotes = append(remotes, model.Entity{Selector: c.peerSelector(peer)})
		} else if e, ok := c.ipBlock(peer.IPBlock, path.Index(i).Child("ipBlock")); ok {
			remotes = append(remotes, e)
		}
	}
	return remotes
}

// peerSelector selects the pods a peer means: those of the policy's namespace unless the peer selects namespaces.
func (c policyConversion) peerSelector(peer *networkingv1.NetworkPolicyPeer) *selector.Selector {
	pods := selector.All()
	if peer.PodSelector != nil {
		pods = LabelSelector(peer.PodSelector)
	}
	if peer.NamespaceSelector == nil {
		return c.podsInNamespace(pods)
	}
	namespaces := LabelSelector(peer.NamespaceSelector).Prefixed(PrefixNamespace)
	if namespaces.IsAll() {
		namespaces = selector.Has(LabelNamespace)
	}
	return selector.And(selector.Equal(LabelOrchestrator, OrchestratorK8s), namespaces, pods)
}

// podsInNamespace narrows pods to the policy's namespace.
func (c policyConversion) podsInNamespace(pods *selector.Selector) *selector.Selector {
	return selector.And(selector.Equal(LabelOrchestrator, OrchestratorK8s),
		selector.Equal(LabelNamespace, c.namespace), pods)
}
