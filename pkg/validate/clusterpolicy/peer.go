package clusterpolicy

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/validate"
)

// peer is a peer of either direction, or a subject. One field is set.
type peer struct {
	namespaces  *metav1.LabelSelector
	pods        *v1alpha2.NamespacedPod
	nodes       *metav1.LabelSelector
	networks    []v1alpha2.CIDR
	domainNames []v1alpha2.DomainName
}

// hasNamedPorts reports whether the peer is of pods.
func (p peer) hasNamedPorts() bool { return p.namespaces != nil || p.pods != nil }

// entity returns the side of a rule that the peer means.
func (p peer) entity(path *field.Path) (model.Entity, *field.Error) {
	switch {
	case p.networks != nil:
		return p.nets(path.Child("networks"))
	case p.domainNames != nil:
		return model.Entity{}, field.Forbidden(path.Child("domainNames"), "names of domains are not enforced here")
	case p.nodes != nil:
		at := path.Child("nodes")
		if errs := validate.CheckLabelSelector(p.nodes, at); len(errs) > 0 {
			return model.Entity{}, errs[0]
		}
		return model.Entity{Nodes: validate.LabelSelector(p.nodes)}, nil
	}
	s, failure := p.selector(path)
	return model.Entity{Selector: s}, failure
}

// selector returns what selects the pods of a peer or subject that has namespaces or pods.
func (p peer) selector(path *field.Path) (*selector.Selector, *field.Error) {
	switch {
	case p.namespaces != nil:
		return podsOf(p.namespaces, path.Child("namespaces"), &metav1.LabelSelector{}, path)
	case p.pods != nil:
		at := path.Child("pods")
		return podsOf(&p.pods.NamespaceSelector, at.Child("namespaceSelector"), &p.pods.PodSelector, at.Child("podSelector"))
	}
	return nil, field.Required(path, "none of the fields known here is set")
}

// podsOf selects pods by their namespace and by their own labels. The CRD does not check label selectors, so an API
// server accepts those that cannot be used.
func podsOf(namespaces *metav1.LabelSelector, namespacesPath *field.Path,
	pods *metav1.LabelSelector, podsPath *field.Path) (*selector.Selector, *field.Error) {
	errs := append(validate.CheckLabelSelector(namespaces, namespacesPath), validate.CheckLabelSelector(pods, podsPath)...)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	inNamespaces := validate.LabelSelector(namespaces).Prefixed(validate.PrefixNamespace)
	if inNamespaces.IsAll() {
		inNamespaces = selector.Has(validate.LabelNamespace)
	}
	return selector.And(selector.Equal(validate.LabelOrchestrator, validate.OrchestratorK8s),
		inNamespaces, validate.LabelSelector(pods)), nil
}

func (p peer) nets(path *field.Path) (model.Entity, *field.Error) {
	var e model.Entity
	for i, text := range p.networks {
		prefix, failure := network(text, path.Index(i))
		if failure != nil {
			return model.Entity{}, failure
		}
		e.Nets = append(e.Nets, prefix)
	}
	if len(e.Nets) == 0 {
		return model.Entity{}, field.Required(path, "a list of networks must not be empty")
	}
	return e, nil
}

// network reads a CIDR. Bits beyond its mask are cut off, as the API server accepts them.
func network(text v1alpha2.CIDR, path *field.Path) (netip.Prefix, *field.Error) {
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, field.Invalid(path, string(text), "must be an IPv4 or IPv6 CIDR, such as 10.0.0.0/8 or fd00::/8")
	}
	return prefix.Masked(), nil
}
