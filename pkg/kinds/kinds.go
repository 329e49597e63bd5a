// Package kinds is the registry of API kinds: one row for each kind, with what sources, validation, Events and RBAC need to
// know of it. It is pure.
//
// A new kind is a conversion in package validate, a row here, and its resource in the agent's ClusterRole; tests hold the
// others to the table.
package kinds

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
	"github.com/margay-project/margay/pkg/validate/calico"
	"github.com/margay-project/margay/pkg/validate/clusterpolicy"
)

// Kind is one row.
type Kind struct {
	Name     string // in manifests
	Ref      string // in validate.Ref and in states of kinds: the Name, with a group if another row has the same Name
	Resource string // the plural in paths and in RBAC
	// Versions are where the kind may be served: one, or the two of Calico's groups, in order of preference. Its objects are the same
	// in both.
	Versions   []schema.GroupVersion
	Namespaced bool
	Required   bool   // policy is not in sync before the first list; that of an Optional kind which is not served is empty
	Optional   bool   // may be served nowhere (a CRD that is not installed); that is an empty list
	Types      *Types // what every API server serves it as, and Convert expects; nil: *unstructured.Unstructured
	Policy     bool   // its objects are policy
	Tiered     bool   // Calico's API server lists its objects for those who may list TierResource, too
	NotServed  bool   // no cluster is asked for it: a directory and etcd hold its objects

	// The functions below are nil for a kind whose objects are not read. Their updates are the caller's.

	// Convert returns what one object of a cluster means. Not ok: it is not usable, and the problems say why. It may be
	// several updates. Objects of one name always mean updates of the same keys, absent ones included, so that a version
	// takes the place of all that the one before it meant.
	Convert func(runtime.Object) (updates []model.Update, problems []validate.Problem, ok bool)
	// Read is Convert for the text of an object, JSON, whose metadata is checked as the API server checks it.
	Read func(text []byte, ref validate.Ref) (updates []model.Update, problems []validate.Problem, ok bool)
	// ReadStored is Read for an object that a datastore has checked. An unknown field is one of a newer version of the API,
	// and the rule or policy with it fails closed.
	ReadStored func(text []byte, ref validate.Ref) (updates []model.Update, problems []validate.Problem, ok bool)
	// Absent returns the updates for an object that does not exist: deletions of all keys that Convert has. Namespace is
	// empty for cluster-wide kinds.
	Absent func(namespace, name string) []model.Update
}

// Types are the Go types of the objects of a kind. Without an Object they are client-go's, which lose fields that they do not
// know. Others are decoded from JSON.
type Types struct{ Object, List runtime.Object }

// IsRead reports whether objects of the kind have a meaning here.
func (k Kind) IsRead() bool { return k.Convert != nil }

// GroupVersionResources are the Versions with the Resource.
func (k Kind) GroupVersionResources() []schema.GroupVersionResource {
	var all []schema.GroupVersionResource
	for _, gv := range k.Versions {
		all = append(all, gv.WithResource(k.Resource))
	}
	return all
}

// TierResource is what Calico's API server asks the rights to a Tiered kind for, besides those to the Resource: a name that no server
// has a resource of.
func (k Kind) TierResource() schema.GroupResource {
	return schema.GroupResource{Group: "projectcalico.org", Resource: "tier." + k.Resource}
}

var (
	core      = []schema.GroupVersion{corev1.SchemeGroupVersion}
	discovery = []schema.GroupVersion{discoveryv1.SchemeGroupVersion}
	network   = []schema.GroupVersion{networkingv1.SchemeGroupVersion}
	// The groups of Calico's kinds: an API server behind the cluster's or CRDs, and the CRDs of old. Where both are served, sources
	// decide for all kinds together which is read.
	calicoGroups = []schema.GroupVersion{
		{Group: "projectcalico.org", Version: "v3"},
		{Group: "crd.projectcalico.org", Version: "v1"},
	}
	clusterPolicy = []schema.GroupVersion{{Group: v1alpha2.GroupName, Version: v1alpha2.GroupVersion.Version}}
)

// All are the kinds, in the order in which sources report them: first those that are read. Pods say how pods are read.
func All(pods validate.Pods) []Kind {
	return []Kind{
		clusterWide("Namespace", "namespaces", core).required().typed(of(validate.DNSLabel, validate.Namespace)),
		clusterWide("Node", "nodes", core).required().typed(of(validate.DNSSubdomain, validate.Node)),
		namespaced("Pod", "pods", core).required().typed(of(validate.DNSSubdomain, pods.Pod)),
		namespaced("Service", "services", core).required().typed(of(validate.DNSLabel, validate.Service)),
		namespaced("ServiceAccount", "serviceaccounts", core).required().typed(of(validate.DNSSubdomain, validate.ServiceAccount)),
		namespaced("EndpointSlice", "endpointslices", discovery).required().typed(of(validate.DNSSubdomain, validate.EndpointSlice)),
		namespaced("NetworkPolicy", "networkpolicies", network).policy().required().
			careful(ofNetworkPolicies(validate.DNSSubdomain), &validate.StoredNetworkPolicy{}, &validate.StoredNetworkPolicyList{}),
		clusterWide(clusterpolicy.Kind, "clusternetworkpolicies", clusterPolicy).policy().required().strict(
			ofText(validate.DNSSubdomain, clusterpolicy.Convert, clusterpolicy.ConvertText, clusterpolicy.ConvertStored)),
		clusterWide("FelixConfiguration", "felixconfigurations", calicoGroups).required().custom(of(validate.DNSSubdomain, validate.FelixConfiguration)),

		clusterWide("Tier", "tiers", calicoGroups).policy().required().strict(ofStored(validate.DNSLabel, calico.ConvertTier)),
		namespaced("NetworkSet", "networksets", calicoGroups).policy().required().strict(ofStored(validate.DNSSubdomain, calico.ConvertNetworkSet)),
		clusterWide("GlobalNetworkSet", "globalnetworksets", calicoGroups).policy().required().
			strict(ofStored(validate.DNSSubdomain, calico.ConvertGlobalNetworkSet)),
		namespaced("NetworkPolicy", "networkpolicies", calicoGroups).policy().tiered().required().beside("projectcalico.org").
			strict(ofStored(calico.PolicyName, calico.ConvertNetworkPolicy)),
		clusterWide("GlobalNetworkPolicy", "globalnetworkpolicies", calicoGroups).policy().tiered().required().
			strict(ofStored(calico.PolicyName, calico.ConvertGlobalNetworkPolicy)),
		namespaced("StagedNetworkPolicy", "stagednetworkpolicies", calicoGroups).policy().tiered().
			strict(ofStored(calico.PolicyName, calico.ConvertStagedNetworkPolicy)),
		clusterWide("StagedGlobalNetworkPolicy", "stagedglobalnetworkpolicies", calicoGroups).policy().tiered().
			strict(ofStored(calico.PolicyName, calico.ConvertStagedGlobalNetworkPolicy)),
		namespaced("StagedKubernetesNetworkPolicy", "stagedkubernetesnetworkpolicies", calicoGroups).policy().
			strict(ofStored(validate.DNSSubdomain, calico.ConvertStagedKubernetesNetworkPolicy)),
		clusterWide("Profile", "profiles", calicoGroups).policy().notServed().strict(ofStored(validate.DNSSubdomain, calico.ConvertProfile)),
		namespaced("WorkloadEndpoint", "workloadendpoints", calicoGroups).notServed().
			strict(of(validate.DNSSubdomain, calico.Workloads{SourceSpoofing: pods.SourceSpoofing}.Convert)),

		clusterWide("Node", "nodes", calicoGroups).notServed().beside("projectcalico.org").
			custom(of(validate.DNSSubdomain, calico.ConvertNode)),

		clusterWide("HostEndpoint", "hostendpoints", calicoGroups).policy(),
	}
}

// Read are those of All whose objects are read.
func Read(pods validate.Pods) []Kind {
	return slices.DeleteFunc(All(pods), func(k Kind) bool { return !k.IsRead() })
}

// Served are those of Read that a cluster may serve.
func Served(pods validate.Pods) []Kind {
	return slices.DeleteFunc(Read(pods), func(k Kind) bool { return k.NotServed })
}

// Unknown is the Label of all kinds that are not in the table.
const Unknown = "unknown"

// labels are the Refs of All.
var labels = func() map[string]bool {
	known := map[string]bool{}
	for _, k := range All(validate.Pods{}) {
		known[k.Ref] = true
	}
	return known
}()

// Label returns the kind of a validate.Ref, or Unknown. Manifests may name any number of kinds, so what is kept for each kind, such as a
// series of a metric, is kept for each Label.
func Label(ref string) string {
	if labels[ref] {
		return ref
	}
	return Unknown
}

func namespaced(name, resource string, versions []schema.GroupVersion) Kind {
	k := clusterWide(name, resource, versions)
	k.Namespaced = true
	return k
}

func clusterWide(name, resource string, versions []schema.GroupVersion) Kind {
	return Kind{Name: name, Ref: name, Resource: resource, Versions: versions}
}

// beside is for a kind whose name another group has, too.
func (k Kind) beside(group string) Kind {
	k.Ref = k.Name + "." + group
	return k
}

func (k Kind) notServed() Kind {
	k.NotServed = true
	return k
}

func (k Kind) required() Kind {
	k.Required = true
	return k
}

func (k Kind) tiered() Kind {
	k.Tiered = true
	return k
}

func (k Kind) policy() Kind {
	k.Policy = true
	return k
}
