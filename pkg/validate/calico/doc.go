// Package calico turns the objects of Calico's API groups, projectcalico.org/v3 and crd.projectcalico.org/v1, into the
// model. It also rejects objects that the schemas of their CRDs and the rules in them reject: a directory of manifests and
// etcd have no API server that would. It is pure.
//
// A refused object has one problem for each of its errors, and gives no updates: its last valid version stays in force
// (semantics D-1).
package calico
