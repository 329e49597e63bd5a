package calico

// WorkloadEndpoint is a WorkloadEndpoint: the interface of a workload, which need not be a pod.
type WorkloadEndpoint struct {
	Object
	Spec WorkloadEndpointSpec `json:"spec"`
}

// Workload names the workload that an endpoint is an interface of.
type Workload struct {
	Orchestrator string `json:"orchestrator,omitempty"`
	Workload     string `json:"workload,omitempty"`
	Node         string `json:"node,omitempty"`
	ContainerID  string `json:"containerID,omitempty"`
	Pod          string `json:"pod,omitempty"`
	Endpoint     string `json:"endpoint,omitempty"`
	// ServiceAccountName is a label of the endpoint.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Network is how an endpoint is connected. The gateways, the MAC address and translations are the CNI plugin's business.
type Network struct {
	IPNetworks    []string `json:"ipNetworks,omitempty"`
	IPNATs        []IPNAT  `json:"ipNATs,omitempty"`
	IPv4Gateway   string   `json:"ipv4Gateway,omitempty"`
	IPv6Gateway   string   `json:"ipv6Gateway,omitempty"`
	InterfaceName string   `json:"interfaceName,omitempty"`
	MAC           string   `json:"mac,omitempty"`
}

// WorkloadEndpointSpec is the spec of a WorkloadEndpoint.
type WorkloadEndpointSpec struct {
	Workload                   `json:",inline"`
	Network                    `json:",inline"`
	Profiles                   []string       `json:"profiles,omitempty"`
	Ports                      []EndpointPort `json:"ports,omitempty"`
	AllowSpoofedSourcePrefixes []string       `json:"allowSpoofedSourcePrefixes,omitempty"`
	// QoSControls are not enforced here.
	QoSControls map[string]Scalar `json:"qosControls,omitempty"`
}

// EndpointPort is a port that an endpoint declares.
type EndpointPort struct {
	Name     string `json:"name"`
	Protocol Scalar `json:"protocol"`
	Port     int32  `json:"port"`
	HostPort int32  `json:"hostPort"`
	HostIP   string `json:"hostIP"`
}

// IPNAT is a translation of addresses.
type IPNAT struct {
	InternalIP string `json:"internalIP"`
	ExternalIP string `json:"externalIP"`
	Source     string `json:"source,omitempty"`
}
