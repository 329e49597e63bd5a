package model

import (
	"cmp"
	"fmt"
)

// EndpointKind says what kind of thing an endpoint is. Names are unique in one kind only.
type EndpointKind uint8

// The kinds. Zero is none of them: an id without a kind is valid only as the zero EndpointID, which names no endpoint.
// The graph does not calculate endpoints of kinds that it does not know, zero included, and reports them.
const (
	WorkloadEndpoint EndpointKind = iota + 1 // a pod
	HostEndpoint                             // an interface of a node, or all of them
	// ShadowEndpoint is a pod with the policy that it would have if its staged policies were enforced. Only dataplanes know
	// of such; no object is one.
	ShadowEndpoint
)

// String returns "workload", "host" or "shadow".
func (k EndpointKind) String() string {
	switch k {
	case WorkloadEndpoint:
		return "workload"
	case HostEndpoint:
		return "host"
	case ShadowEndpoint:
		return "shadow"
	}
	return fmt.Sprintf("endpoint kind %d", uint8(k))
}

// EndpointID names an endpoint. Unique in the cluster at any one time. The zero EndpointID names none; make others with
// WorkloadID and HostID, which see to the kind.
type EndpointID struct {
	Namespace, Name string // Namespace is empty for host endpoints
	Kind            EndpointKind
}

// WorkloadID names the endpoint of a pod.
func WorkloadID(namespace, name string) EndpointID {
	return EndpointID{Kind: WorkloadEndpoint, Namespace: namespace, Name: name}
}

// HostID names a host endpoint.
func HostID(name string) EndpointID { return EndpointID{Kind: HostEndpoint, Name: name} }

// Shadow names the shadow of a workload.
func (id EndpointID) Shadow() EndpointID {
	return EndpointID{Kind: ShadowEndpoint, Namespace: id.Namespace, Name: id.Name}
}

// String returns "shop/db-0" for a workload "host:node1-eth0" for a host endpoint and "staged:shop/db-0" for a shadow; a
// colon is in no name.
func (id EndpointID) String() string {
	switch id.Kind {
	case HostEndpoint:
		return "host:" + id.Name
	case ShadowEndpoint:
		return "staged:" + id.Namespace + "/" + id.Name
	}
	return id.Namespace + "/" + id.Name
}

// Compare orders by kind, then namespace, then name.
func (id EndpointID) Compare(o EndpointID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}
