package calico

// Rule is a rule of a policy or a profile.
type Rule struct {
	Action      string        `json:"action"`
	IPVersion   *int          `json:"ipVersion,omitempty"`
	Protocol    *Scalar       `json:"protocol,omitempty"`
	NotProtocol *Scalar       `json:"notProtocol,omitempty"`
	ICMP        *ICMP         `json:"icmp,omitempty"`
	NotICMP     *ICMP         `json:"notICMP,omitempty"`
	Source      Entity        `json:"source,omitzero"`
	Destination Entity        `json:"destination,omitzero"`
	HTTP        *HTTP         `json:"http,omitempty"`
	Metadata    *RuleMetadata `json:"metadata,omitempty"`
}

// RuleMetadata is what people say about a rule.
type RuleMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ICMP is a type, with or without a code.
type ICMP struct {
	Type *int `json:"type,omitempty"`
	Code *int `json:"code,omitempty"`
}

// HTTP is the match of a rule on HTTP requests. It is validated, and never matches (semantics D-3).
type HTTP struct {
	Methods []string   `json:"methods,omitempty"`
	Paths   []HTTPPath `json:"paths,omitempty"`
}

// HTTPPath is one path, or the beginning of paths.
type HTTPPath struct {
	Exact  string `json:"exact,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// Entity is one side of a rule.
type Entity struct {
	Nets              []string         `json:"nets,omitempty"`
	NotNets           []string         `json:"notNets,omitempty"`
	Selector          string           `json:"selector,omitempty"`
	NotSelector       string           `json:"notSelector,omitempty"`
	NamespaceSelector string           `json:"namespaceSelector,omitempty"`
	ServiceAccounts   *ServiceAccounts `json:"serviceAccounts,omitempty"`
	Services          *Services        `json:"services,omitempty"`
	Ports             []Scalar         `json:"ports,omitempty"`
	NotPorts          []Scalar         `json:"notPorts,omitempty"`
}

// ServiceAccounts selects endpoints by their service accounts.
type ServiceAccounts struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// Services names one Service.
type Services struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}
