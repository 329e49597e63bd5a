package events

import (
	"slices"
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
	kind, plural string
	namespaced   bool
	versions     []schema.GroupVersion // under which a cluster may serve it, each asked for until one has the object
}

// resources are the kinds that can have problems. A new kind that the syncer follows is a line here, and one in the
// agent's ClusterRole (get).
var resources = []resource{
	{"Node", "nodes", false, coreVersions},
	{"Namespace", "namespaces", false, coreVersions},
	{"Pod", "pods", true, coreVersions},
	{"Service", "services", true, coreVersions},
	{"ServiceAccount", "serviceaccounts", true, coreVersions},
	{"EndpointSlice", "endpointslices", true, []schema.GroupVersion{{Group: "discovery.k8s.io", Version: "v1"}}},
	{"NetworkPolicy", "networkpolicies", true, []schema.GroupVersion{{Group: "networking.k8s.io", Version: "v1"}}},
	{"NetworkPolicy", "networkpolicies", true, calicoVersions},
	{"GlobalNetworkPolicy", "globalnetworkpolicies", false, calicoVersions},
	{"NetworkSet", "networksets", true, calicoVersions},
	{"GlobalNetworkSet", "globalnetworksets", false, calicoVersions},
	{"Tier", "tiers", false, calicoVersions},
	{"FelixConfiguration", "felixconfigurations", false, calicoVersions},
}

var (
	coreVersions   = []schema.GroupVersion{{Version: "v1"}}
	calicoVersions = []schema.GroupVersion{{Group: "crd.projectcalico.org", Version: "v1"}, {Group: "projectcalico.org", Version: "v3"}}
)

// kindName is a kind of a validate.Ref without its group.
func kindName(kind string) string {
	name, _, _ := strings.Cut(kind, ".")
	return name
}

// resourceOf finds the resource of a kind as a validate.Ref has it: "Pod", "NetworkPolicy.projectcalico.org". Without a
// group the first kind of the name is meant.
func resourceOf(kind string) (resource, bool) {
	name, group, grouped := strings.Cut(kind, ".")
	i := slices.IndexFunc(resources, func(r resource) bool {
		return r.kind == name && (!grouped || slices.ContainsFunc(r.versions, func(gv schema.GroupVersion) bool { return gv.Group == group }))
	})
	if i < 0 {
		return resource{}, false
	}
	return resources[i], true
}
