package clusterpolicy

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
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

// entity returns the side of a rule that the peer means. known: see selector.
func (p peer) entity(path *field.Path, known bool, check checkSelectors) (model.Entity, *field.Error) {
	switch {
	case p.networks != nil:
		return p.nets(path.Child("networks"))
	case p.domainNames != nil:
		return model.Entity{}, field.Forbidden(path.Child("domainNames"), "names of domains are not enforced here")
	case p.nodes != nil:
		at := path.Child("nodes")
		if errs := check(p.nodes, at); len(errs) > 0 {
			return model.Entity{}, errs[0]
		}
		return model.Entity{Nodes: validate.LabelSelector(p.nodes)}, nil
	}
	s, failure := p.selector(path, known, check)
	return model.Entity{Selector: s}, failure
}

// selector returns what selects the pods of a peer or subject that has namespaces or pods. The CRD does not check label selectors, so
// an API server accepts those that cannot be used. With known, a requirement on the labels of a Namespace matches no pod whose
// Namespace is not known.
func (p peer) selector(path *field.Path, known bool, check checkSelectors) (*selector.Selector, *field.Error) {
	namespaces, pods := p.namespaces, &metav1.LabelSelector{}
	namespacesPath, podsPath := path.Child("namespaces"), path
	switch {
	case p.pods != nil:
		namespaces, pods = &p.pods.NamespaceSelector, &p.pods.PodSelector
		namespacesPath, podsPath = path.Child("pods", "namespaceSelector"), path.Child("pods", "podSelector")
	case namespaces == nil:
		return nil, field.Required(path, "none of the fields known here is set")
	}
	errs := append(check(namespaces, namespacesPath), check(pods, podsPath)...)
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return selector.And(selector.Equal(validate.LabelOrchestrator, validate.OrchestratorK8s),
		inNamespaces(namespaces, known), validate.LabelSelector(pods)), nil
}

// inNamespaces selects pods by the labels of their Namespace.
func inNamespaces(labels *metav1.LabelSelector, known bool) *selector.Selector {
	s := validate.LabelSelector(labels).Prefixed(validate.PrefixNamespace)
	switch {
	case s.IsAll():
		return selector.Has(validate.LabelNamespace)
	case known && s.Matches(selector.Map(nil)):
		return selector.And(selector.Has(validate.PrefixNamespace+corev1.LabelMetadataName), s)
	}
	return s
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
