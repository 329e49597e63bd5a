// Package calico turns the objects of Calico's API groups, projectcalico.org/v3 and crd.projectcalico.org/v1, into the
// model. It also rejects objects that the schemas of their CRDs and the rules in them reject: a directory of manifests and
// etcd have no API server that would. It is pure.
//
// An object that is refused has one problem for each thing that is wrong with it, and means nothing: what it meant before
// stays in force (semantics D-1).
package calico
