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
)

// String returns "workload" or "host".
func (k EndpointKind) String() string {
	switch k {
	case WorkloadEndpoint:
		return "workload"
	case HostEndpoint:
		return "host"
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

// String returns "shop/db-0" for a workload and "host:node1-eth0" for a host endpoint; a colon is in no name.
func (id EndpointID) String() string {
	if id.Kind == HostEndpoint {
		return "host:" + id.Name
	}
	return id.Namespace + "/" + id.Name
}

// Compare orders by kind, then namespace, then name.
func (id EndpointID) Compare(o EndpointID) int {
	return cmp.Or(cmp.Compare(id.Kind, o.Kind), cmp.Compare(id.Namespace, o.Namespace), cmp.Compare(id.Name, o.Name))
}
