// Package clusterpolicy turns a ClusterNetworkPolicy of policy.networking.k8s.io/v1alpha2 into a policy of the model
// (semantics §12). It is pure, as package validate is.
//
// ConvertText is for manifests: it rejects what the schema of the released CRD rejects, experimental fields included.
// Convert is for objects that an API server has accepted by the CRD it has, which may be of another release. There a rule
// that cannot be converted fails closed, and the rest of the policy is used.
package clusterpolicy
