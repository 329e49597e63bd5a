package clusterpolicy

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

var (
	tiers   = []v1alpha2.Tier{v1alpha2.AdminTier, v1alpha2.BaselineTier}
	actions = []v1alpha2.ClusterNetworkPolicyRuleAction{
		v1alpha2.ClusterNetworkPolicyRuleActionAccept,
		v1alpha2.ClusterNetworkPolicyRuleActionDeny,
		v1alpha2.ClusterNetworkPolicyRuleActionPass,
	}
)

// rule is a rule of either direction.
type rule struct {
	dir       model.Direction
	index     int
	path      *field.Path
	peersPath *field.Path
	name      string
	action    v1alpha2.ClusterNetworkPolicyRuleAction
	peers     []peer
	protocols []v1alpha2.ClusterNetworkPolicyProtocol
}

func ingressRule(r *v1alpha2.ClusterNetworkPolicyIngressRule, i int) rule {
	path := field.NewPath("spec", "ingress").Index(i)
	out := rule{dir: model.Ingress, index: i, path: path, peersPath: path.Child("from"), name: r.Name, action: r.Action, protocols: r.Protocols}
	for _, p := range r.From {
		out.peers = append(out.peers, peer{namespaces: p.Namespaces, pods: p.Pods})
	}
	return out
}

func egressRule(r *v1alpha2.ClusterNetworkPolicyEgressRule, i int) rule {
	path := field.NewPath("spec", "egress").Index(i)
	out := rule{dir: model.Egress, index: i, path: path, peersPath: path.Child("to"), name: r.Name, action: r.Action, protocols: r.Protocols}
	for _, p := range r.To {
		out.peers = append(out.peers, peer{
			namespaces: p.Namespaces, pods: p.Pods, nodes: p.Nodes, networks: p.Networks, domainNames: p.DomainNames,
		})
	}
	return out
}

func (r rule) modelAction() (model.Action, bool) {
	switch r.action {
	case v1alpha2.ClusterNetworkPolicyRuleActionAccept:
		return model.Allow, true
	case v1alpha2.ClusterNetworkPolicyRuleActionDeny:
		return model.Deny, true
	case v1alpha2.ClusterNetworkPolicyRuleActionPass:
		return model.Pass, true
	}
	return 0, false
}

// modelRule is the part of the model's rule that does not depend on peer and protocol.
func (r rule) modelRule(action model.Action) model.Rule {
	return model.Rule{Action: action, Index: r.index, Name: validate.RuleName(r.name)}
}

// remotes returns one entity for each peer. The labels of a Namespace that is not known yet may be others: Deny rules alone match its
// pods by a label that it lacks.
func (r rule) remotes(check checkSelectors) ([]model.Entity, *field.Error) {
	if len(r.peers) == 0 {
		return nil, field.Required(r.peersPath, "a rule must have a peer")
	}
	remotes := make([]model.Entity, 0, len(r.peers))
	known := r.action != v1alpha2.ClusterNetworkPolicyRuleActionDeny
	for i, p := range r.peers {
		at := r.peersPath.Index(i)
		e, failure := p.entity(at, known, check)
		if failure == nil && !p.hasNamedPorts() && r.hasNamedPort() {
			failure = field.Forbidden(r.path.Child("protocols"), noNamedPorts)
		}
		if failure != nil {
			return nil, failure
		}
		remotes = append(remotes, e)
	}
	return remotes, nil
}

const noNamedPorts = "destinationNamedPort must not stand beside a peer of networks, nodes or domainNames, which have no named ports"

func (r rule) hasNamedPort() bool {
	for _, p := range r.protocols {
		if p.DestinationNamedPort != "" {
			return true
		}
	}
	return false
}
