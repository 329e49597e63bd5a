package events

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What is written.
var (
	eventResource = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// resource is a kind as the API server knows it.
type resource struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}

// resources are the kinds that can have problems. A new kind that the syncer follows is a line here, and one in the
// agent's ClusterRole (get).
var resources = []resource{
	core("nodes", "Node", false),
	core("namespaces", "Namespace", false),
	core("pods", "Pod", true),
	core("services", "Service", true),
	core("serviceaccounts", "ServiceAccount", true),
	{schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, "EndpointSlice", true},
	{schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"}, "NetworkPolicy", true},
	calico("networkpolicies", "NetworkPolicy", true),
	calico("globalnetworkpolicies", "GlobalNetworkPolicy", false),
	calico("networksets", "NetworkSet", true),
	calico("globalnetworksets", "GlobalNetworkSet", false),
	calico("tiers", "Tier", false),
	calico("felixconfigurations", "FelixConfiguration", false),
}

func core(plural, kind string, namespaced bool) resource {
	return resource{schema.GroupVersionResource{Version: "v1", Resource: plural}, kind, namespaced}
}

func calico(plural, kind string, namespaced bool) resource {
	return resource{schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: plural}, kind, namespaced}
}

// kindName is a kind of a validate.Ref without its group.
func kindName(kind string) string {
	name, _, _ := strings.Cut(kind, ".")
	return name
}

// resourceOf finds the resource of a kind as a validate.Ref has it: "Pod", "NetworkPolicy.projectcalico.org". The
// group of a custom resource may lack its first label. Without a group the first kind of the name is meant.
func resourceOf(kind string) (resource, bool) {
	name, group, grouped := strings.Cut(kind, ".")
	for _, r := range resources {
		if r.kind == name && (!grouped || r.Group == group || strings.HasSuffix(r.Group, "."+group)) {
			return r, true
		}
	}
	return resource{}, false
}
