package clusterpolicy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// The limits of the released CRD.
const (
	maxRules    = 25
	maxEntries  = 25 // of peers, protocols, networks and domain names
	maxPriority = 1000
	maxNameLen  = 100
	maxCIDRLen  = 43
)

// domainName is the CRD's pattern, with its A-z.
var domainName = regexp.MustCompile(`^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$`)

// ConvertText is Convert for the text of an object that no API server has checked. An object that the schema of the CRD rejects is
// rejected.
func ConvertText(text []byte, o *v1alpha2.ClusterNetworkPolicy) (model.PolicyUpdate, []validate.Problem, bool) {
	rep := validate.NewReport(validate.Ref{Kind: Kind, Name: o.Name})
	rep.Reject(checkShape(text))
	if rep.OK() {
		rep.Reject(checkSpec(&o.Spec))
	}
	if !rep.OK() {
		return model.PolicyUpdate{Key: key(o)}, rep.Done(), false
	}
	return convert(o, nil, false)
}

// checkSpec finds values that the schema rejects. checkShape checks which fields there are.
func checkSpec(spec *v1alpha2.ClusterNetworkPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if !slices.Contains(tiers, spec.Tier) {
		errs = append(errs, field.NotSupported(path.Child("tier"), spec.Tier, tiers))
	}
	if spec.Priority < 0 || spec.Priority > maxPriority {
		errs = append(errs, field.Invalid(path.Child("priority"), spec.Priority, fmt.Sprintf("must be in 0-%d", maxPriority)))
	}
	errs = append(errs, atMost(len(spec.Ingress), maxRules, path.Child("ingress"))...)
	errs = append(errs, atMost(len(spec.Egress), maxRules, path.Child("egress"))...)
	for i := range spec.Ingress {
		errs = append(errs, checkRule(ingressRule(&spec.Ingress[i], i))...)
	}
	for i := range spec.Egress {
		errs = append(errs, checkRule(egressRule(&spec.Egress[i], i))...)
	}
	return errs
}

func atMost(n, limit int, path *field.Path) field.ErrorList {
	if n > limit {
		return field.ErrorList{field.TooMany(path, n, limit)}
	}
	return nil
}

func checkRule(r rule) field.ErrorList {
	var errs field.ErrorList
	if utf8.RuneCountInString(r.name) > maxNameLen {
		errs = append(errs, field.TooLong(r.path.Child("name"), r.name, maxNameLen))
	}
	if !slices.Contains(actions, r.action) {
		errs = append(errs, field.NotSupported(r.path.Child("action"), r.action, actions))
	}
	errs = append(errs, atMost(len(r.peers), maxEntries, r.peersPath)...)
	errs = append(errs, atMost(len(r.protocols), maxEntries, r.path.Child("protocols"))...)
	for i, p := range r.peers {
		errs = append(errs, checkExpressions(p, r.peersPath.Index(i))...)
		errs = append(errs, checkNetworks(p.networks, r.peersPath.Index(i).Child("networks"))...)
		errs = append(errs, checkDomainNames(p.domainNames, r.peersPath.Index(i).Child("domainNames"))...)
	}
	if r.hasNamedPort() && slices.ContainsFunc(r.peers, func(p peer) bool { return !p.hasNamedPorts() }) {
		errs = append(errs, field.Forbidden(r.path.Child("protocols"), noNamedPorts))
	}
	for i, p := range r.protocols {
		_, port, at := portOf(p, r.path.Child("protocols").Index(i))
		if port == nil {
			continue
		}
		if _, failure := portRange(port, at.Child("destinationPort")); failure != nil {
			errs = append(errs, failure)
		}
	}
	return errs
}

// checkExpressions finds expressions of label selectors without a key or an operator. The schema knows no other
// error of a selector; Convert finds those.
func checkExpressions(p peer, path *field.Path) field.ErrorList {
	selectors := map[string]*metav1.LabelSelector{"namespaces": p.namespaces, "nodes": p.nodes}
	if p.pods != nil {
		selectors["pods.namespaceSelector"], selectors["pods.podSelector"] = &p.pods.NamespaceSelector, &p.pods.PodSelector
	}
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(selectors)) {
		if selectors[name] == nil {
			continue
		}
		for i, e := range selectors[name].MatchExpressions {
			at := path.Child(name, "matchExpressions").Index(i)
			if e.Key == "" {
				errs = append(errs, field.Required(at.Child("key"), "must be set"))
			}
			if e.Operator == "" {
				errs = append(errs, field.Required(at.Child("operator"), "must be set"))
			}
		}
	}
	return errs
}

func checkNetworks(networks []v1alpha2.CIDR, path *field.Path) field.ErrorList {
	errs := atMost(len(networks), maxEntries, path)
	for i, text := range networks {
		at := path.Index(i)
		if len(text) > maxCIDRLen {
			errs = append(errs, field.TooLong(at, text, maxCIDRLen))
		} else if _, failure := network(text, at); failure != nil {
			errs = append(errs, failure)
		}
		if slices.Contains(networks[:i], text) {
			errs = append(errs, field.Duplicate(at, text))
		}
	}
	return errs
}

func checkDomainNames(names []v1alpha2.DomainName, path *field.Path) field.ErrorList {
	errs := atMost(len(names), maxEntries, path)
	for i, name := range names {
		if !domainName.MatchString(string(name)) {
			errs = append(errs, field.Invalid(path.Index(i), name, "must be a name of a domain, such as example.com or *.example.com"))
		}
		if slices.Contains(names[:i], name) {
			errs = append(errs, field.Duplicate(path.Index(i), name))
		}
	}
	return errs
}
