package validate

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// kinds lists what Parse reads. A new kind is one function in a file of its own and one entry here.
var kinds = []*kind{
	newKind("v1", "Namespace", clusterWide, ignoreUnknown, isDNSLabel, Namespace),
	newKind("v1", "Node", clusterWide, ignoreUnknown, isDNSSubdomain, Node),
	newKind("v1", "Pod", namespaced, ignoreUnknown, isDNSSubdomain, Pod),
	newKind("v1", "Service", namespaced, ignoreUnknown, isDNSLabel, Service),
	newKind("v1", "ServiceAccount", namespaced, ignoreUnknown, isDNSSubdomain, ServiceAccount),
	newKind("discovery.k8s.io/v1", "EndpointSlice", namespaced, ignoreUnknown, isDNSSubdomain, EndpointSlice),
	newKind("crd.projectcalico.org/v1", "FelixConfiguration", clusterWide, ignoreUnknown, isDNSSubdomain, FelixConfiguration),
	newKind("projectcalico.org/v3", "FelixConfiguration", clusterWide, ignoreUnknown, isDNSSubdomain, FelixConfiguration),
	newKind("networking.k8s.io/v1", "NetworkPolicy", namespaced, rejectUnknown, isDNSSubdomain, NetworkPolicy),
}

// findKind returns nil for a kind that is not read.
func findKind(apiVersion, name string) *kind {
	for _, k := range kinds {
		if k.apiVersion == apiVersion && k.name == name {
			return k
		}
	}
	return nil
}

// annotatedPods reads Pods with the annotations of a CNI plugin.
var annotatedPods = map[Annotator]*kind{
	CalicoAnnotator: newKind("v1", "Pod", namespaced, ignoreUnknown, isDNSSubdomain, CalicoAnnotator.Pod),
	AWSAnnotator:    newKind("v1", "Pod", namespaced, ignoreUnknown, isDNSSubdomain, AWSAnnotator.Pod),
}

// kind is findKind for whoever reads these annotations.
func (a Annotator) kind(apiVersion, name string) *kind {
	if pods := annotatedPods[a]; pods != nil && pods.apiVersion == apiVersion && pods.name == name {
		return pods
	}
	return findKind(apiVersion, name)
}

// isKindName reports whether a kind of this name is read, of any group and version.
func isKindName(name string) bool {
	return slices.ContainsFunc(kinds, func(k *kind) bool { return k.name == name })
}

// refKind is how a Ref spells a kind: by its name, unless that name belongs to a kind of another group that is read.
// Then the group follows, as in "NetworkPolicy.projectcalico.org", so that no two objects have one Ref.
func refKind(apiVersion, name string) string {
	group := groupOf(apiVersion)
	if apiVersion == "" || !isKindName(name) || slices.ContainsFunc(kinds, func(k *kind) bool {
		return k.name == name && groupOf(k.apiVersion) == group
	}) {
		return name
	}
	return name + "." + group
}

// groupOf returns "core" for kinds without a group.
func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return "core"
}

// The rules of the API server for names.
var (
	isDNSLabel     = validation.IsDNS1123Label
	isDNSSubdomain = validation.IsDNS1123Subdomain
)
