package validate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkNetworkPolicy finds the errors for which the API server refuses a NetworkPolicy, but for CIDRs.
func checkNetworkPolicy(spec *networkingv1.NetworkPolicySpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := CheckLabelSelector(&spec.PodSelector, path.Child("podSelector"))
	for i, r := range spec.Ingress {
		at := func() *field.Path { return path.Child("ingress").Index(i) }
		errs = append(errs, checkPorts(r.Ports, func() *field.Path { return at().Child("ports") })...)
		errs = append(errs, checkPeers(r.From, func() *field.Path { return at().Child("from") })...)
	}
	for i, r := range spec.Egress {
		at := func() *field.Path { return path.Child("egress").Index(i) }
		errs = append(errs, checkPorts(r.Ports, func() *field.Path { return at().Child("ports") })...)
		errs = append(errs, checkPeers(r.To, func() *field.Path { return at().Child("to") })...)
	}
	return append(errs, checkPolicyTypes(spec.PolicyTypes, path.Child("policyTypes"))...)
}

func checkPolicyTypes(types []networkingv1.PolicyType, path *field.Path) field.ErrorList {
	known := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if len(types) > len(known) {
		return field.ErrorList{field.TooMany(path, len(types), len(known))}
	}
	var errs field.ErrorList
	for i, t := range types {
		if !slices.Contains(known, t) {
			errs = append(errs, field.NotSupported(path.Index(i), t, known))
		}
	}
	return errs
}

func checkPeers(peers []networkingv1.NetworkPolicyPeer, path place) field.ErrorList {
	var errs field.ErrorList
	for i, p := range peers {
		at := func() *field.Path { return path().Index(i) }
		if p.PodSelector != nil {
			errs = append(errs, CheckLabelSelector(p.PodSelector, at().Child("podSelector"))...)
		}
		if p.NamespaceSelector != nil {
			errs = append(errs, CheckLabelSelector(p.NamespaceSelector, at().Child("namespaceSelector"))...)
		}
		selects := p.PodSelector != nil || p.NamespaceSelector != nil
		switch {
		case !selects && p.IPBlock == nil:
			errs = append(errs, field.Required(at(), "a peer must have podSelector, namespaceSelector or ipBlock"))
		case selects && p.IPBlock != nil:
			errs = append(errs, field.Forbidden(at().Child("ipBlock"), "must not be combined with a selector"))
		}
	}
	return errs
}

func checkPorts(ports []networkingv1.NetworkPolicyPort, path place) field.ErrorList {
	var errs field.ErrorList
	for i, p := range ports {
		at := func() *field.Path { return path().Index(i) }
		if p.Protocol != nil {
			if _, ok := protocolNumber(*p.Protocol); !ok || *p.Protocol == "" {
				known := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
				errs = append(errs, field.NotSupported(at().Child("protocol"), *p.Protocol, known))
			}
		}
		errs = append(errs, checkPort(p, at)...)
	}
	return errs
}

func checkPort(p networkingv1.NetworkPolicyPort, at place) field.ErrorList {
	numeric := p.Port != nil && p.Port.Type == intstr.Int
	var errs field.ErrorList
	if numeric {
		for _, msg := range validation.IsValidPortNum(int(p.Port.IntVal)) {
			errs = append(errs, field.Invalid(at().Child("port"), p.Port.IntVal, msg))
		}
	} else if p.Port != nil {
		for _, msg := range validation.IsValidPortName(p.Port.StrVal) {
			errs = append(errs, field.Invalid(at().Child("port"), p.Port.StrVal, msg))
		}
	}
	switch {
	case p.EndPort == nil:
	case !numeric:
		errs = append(errs, field.Invalid(at().Child("endPort"), *p.EndPort, "needs a numeric port"))
	case *p.EndPort < p.Port.IntVal:
		errs = append(errs, field.Invalid(at().Child("endPort"), *p.EndPort, "must not be less than port"))
	default:
		for _, msg := range validation.IsValidPortNum(int(*p.EndPort)) {
			errs = append(errs, field.Invalid(at().Child("endPort"), *p.EndPort, msg))
		}
	}
	return errs
}

// CheckLabelSelector finds the errors for which the API server refuses a label selector; a nil one is valid.
func CheckLabelSelector(ls *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metavalidation.ValidateLabelSelector(ls, metavalidation.LabelSelectorValidationOptions{}, path)
}

// IsLabelValue reports whether an error of CheckLabelSelector is one of a value in matchExpressions that no label can have. Such a
// selector can be evaluated all the same: older API servers did not check these values, and today's keep the objects.
func IsLabelValue(err *field.Error) bool {
	i := strings.LastIndexByte(err.Field, '[')
	return i >= 0 && strings.HasSuffix(err.Field[:i], ".values")
}

// WarnOfLabelValue adds an error for which IsLabelValue is true, of an object that is used all the same.
func (r *Report) WarnOfLabelValue(err *field.Error) {
	r.Add(Warning, err.Field, "%s; no label has this value", err.ErrorBody())
}
