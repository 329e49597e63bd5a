package validate

import "k8s.io/apimachinery/pkg/util/validation"

// kinds lists what Parse reads. A new kind is one function in a file of its own and one entry here.
var kinds = []*kind{
	newKind("v1", "Namespace", clusterWide, ignoreUnknown, isDNSLabel, Namespace),
	newKind("v1", "Node", clusterWide, ignoreUnknown, isDNSSubdomain, Node),
	newKind("v1", "Pod", namespaced, ignoreUnknown, isDNSSubdomain, Pod),
	newKind("v1", "Service", namespaced, ignoreUnknown, isDNSLabel, Service),
	newKind("v1", "ServiceAccount", namespaced, ignoreUnknown, isDNSSubdomain, ServiceAccount),
	newKind("discovery.k8s.io/v1", "EndpointSlice", namespaced, ignoreUnknown, isDNSSubdomain, EndpointSlice),
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

// The rules of the API server for names.
var (
	isDNSLabel     = validation.IsDNS1123Label
	isDNSSubdomain = validation.IsDNS1123Subdomain
)
