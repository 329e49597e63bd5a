package validate

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NetworkPolicy returns a Kubernetes NetworkPolicy as a policy of the default tier (semantics §11). A policy that the
// API server would refuse is rejected, with one exception: an ipBlock that cannot be read costs the rule its peer, and
// nothing else (D-7).
func NetworkPolicy(np *networkingv1.NetworkPolicy) (model.PolicyUpdate, []Problem, bool) {
	return convertNetworkPolicy(np, checkNetworkPolicy(&np.Spec), closures{})
}

// NetworkPolicyStored is NetworkPolicy for an object that a datastore has checked, with the paths of its fields that are not known
// here. They, and values that are not known where the API has a list of them, are those of a newer version of the API: the rule
// with one allows nothing, or the policy, if it belongs to no rule (semantics §12).
func NetworkPolicyStored(np *networkingv1.NetworkPolicy, unknown []string) (model.PolicyUpdate, []Problem, bool) {
	c := closuresOf(unknown)
	wrong := c.values(checkNetworkPolicy(&np.Spec), &np.Spec)
	return convertNetworkPolicy(np, wrong, c)
}

func networkPolicyKey(np *networkingv1.NetworkPolicy) model.PolicyKey {
	return model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: np.Namespace, Name: np.Name}
}

func convertNetworkPolicy(np *networkingv1.NetworkPolicy, wrong field.ErrorList, closed closures) (model.PolicyUpdate, []Problem, bool) {
	update := model.PolicyUpdate{Key: networkPolicyKey(np)}
	rep := Report{ref: Ref{Kind: "NetworkPolicy", Namespace: np.Namespace, Name: np.Name}}
	rep.Reject(wrong)
	if closed.value != nil && rep.OK() {
		rep.WarnOfLabelValue(closed.value)
	}
	c := policyConversion{Report: &rep, namespace: np.Namespace, closed: closed, peers: &[]model.Entity{}}
	if !rep.OK() {
		c.reportBlocks(&np.Spec)
		return update, rep.Done(), false
	}
	c.closed.limit(&np.Spec)
	update.Policy = c.policy(&np.Spec)
	return update, rep.Done(), true
}

// place says where something stands, for a problem with it. There may be very much without a problem, so it is made when it is
// asked for.
type place func() *field.Path

// policyConversion turns the spec of one valid NetworkPolicy into a policy.
type policyConversion struct {
	*Report
	namespace string
	closed    closures
	peers     *[]model.Entity // space for those of one rule
}

func (c policyConversion) policy(spec *networkingv1.NetworkPolicySpec) *model.Policy {
	p := &model.Policy{
		Tier:     model.TierDefault,
		Order:    model.OrderNetworkPolicy,
		Selector: c.podsInNamespace(LabelSelector(&spec.PodSelector)),
	}
	p.AppliesIngress, p.AppliesEgress = policyTypes(spec)
	if c.closed.policy != nil {
		c.Add(RulesLeftOut, c.closed.policy.Field, "%s; the policy allows nothing", c.closed.policy.Detail)
		p.AppliesIngress, p.AppliesEgress = p.AppliesIngress || c.closed.bothDirections, p.AppliesEgress || c.closed.bothDirections
		return p
	}
	path := field.NewPath("spec")
	switch {
	case p.AppliesIngress:
		p.Ingress = slices.Grow(p.Ingress, countRules(len(spec.Ingress), ingressRule(spec)))
		for i, r := range spec.Ingress {
			at := func() *field.Path { return path.Child("ingress").Index(i) }
			if closed, ok := c.closedRule(i, at); ok {
				p.Ingress = append(p.Ingress, closed)
				continue
			}
			p.Ingress = c.rules(p.Ingress, model.Ingress, i, r.From, r.Ports, func() *field.Path { return at().Child("from") })
		}
	case len(spec.Ingress) > 0:
		c.Add(Warning, path.Child("ingress").String(), "the rules have no effect, because policyTypes does not contain Ingress")
	}
	switch {
	case p.AppliesEgress:
		p.Egress = slices.Grow(p.Egress, countRules(len(spec.Egress), egressRule(spec)))
		for i, r := range spec.Egress {
			at := func() *field.Path { return path.Child("egress").Index(i) }
			if closed, ok := c.closedRule(i, at); ok {
				p.Egress = append(p.Egress, closed)
				continue
			}
			p.Egress = c.rules(p.Egress, model.Egress, i, r.To, r.Ports, func() *field.Path { return at().Child("to") })
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

// rules converts one API rule and appends it: one rule per peer and protocol. No peers, or no ports, mean any.
func (c policyConversion) rules(rules []model.Rule, dir model.Direction, index int, peers []networkingv1.NetworkPolicyPeer,
	ports []networkingv1.NetworkPolicyPort, path place) []model.Rule {
	remotes := append((*c.peers)[:0], model.Entity{})
	if len(peers) > 0 {
		remotes = c.remotes(remotes[:0], peers, path)
	}
	*c.peers = remotes
	groups := groupPorts(ports)
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

// remotes converts the peers that can be read, and appends them.
func (c policyConversion) remotes(remotes []model.Entity, peers []networkingv1.NetworkPolicyPeer, path place) []model.Entity {
	for i := range peers {
		peer := &peers[i]
		if peer.IPBlock == nil {
			remotes = append(remotes, model.Entity{Selector: c.peerSelector(peer)})
		} else if e, ok := c.ipBlock(peer.IPBlock, func() *field.Path { return path().Index(i).Child("ipBlock") }); ok {
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
	switch {
	case namespaces.IsAll():
		namespaces = selector.Has(LabelNamespace)
	case namespaces.Matches(selector.Map(nil)): // the labels of a Namespace that is not known yet may be others
		namespaces = selector.And(selector.Has(PrefixNamespace+corev1.LabelMetadataName), namespaces)
	}
	return selector.And(selector.Equal(LabelOrchestrator, OrchestratorK8s), namespaces, pods)
}

// podsInNamespace narrows pods to the policy's namespace.
func (c policyConversion) podsInNamespace(pods *selector.Selector) *selector.Selector {
	return selector.And(selector.Equal(LabelOrchestrator, OrchestratorK8s),
		selector.Equal(LabelNamespace, c.namespace), pods)
}
