// Package model holds Margay's nouns: what the datastore says (Endpoint, Profile, Tier, Policy, Rule, NetworkSet,
// Service) wrapped in Updates, and what the calculation graph makes of it (EndpointPolicy, SetChange) wrapped in
// Changes. It depends on the standard library and pkg/selector only, so it builds on any OS.
//
// Everything here is plain data and is immutable once handed on: a sender never changes a value it has passed to
// another package, a receiver never changes a value it was given.
//
// Directions are always the pod's: ingress is traffic delivered to the endpoint, egress is traffic it originates.
package model

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/selector"
)

// DefaultInterfacePrefix begins the names of workload interfaces unless the CNI plugin is configured otherwise.
const DefaultInterfacePrefix = "cali"

// Direction of traffic from the endpoint's point of view.
type Direction uint8

const (
	Ingress Direction = iota // delivered to the endpoint; the remote side is the source
	Egress                   // originated by the endpoint; the remote side is the destination
)

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// Action is what a rule, or the end of a tier, does with a packet.
type Action uint8

const (
	Allow Action = iota + 1
	Deny
	Pass // leave this tier (or, in a profile, this profile) and go on with the next
	Log  // note it and go on with the next rule
)

// String returns the action as the API spells it.
func (a Action) String() string {
	switch a {
	case Allow:
		return "Allow"
	case Deny:
		return "Deny"
	case Pass:
		return "Pass"
	case Log:
		return "Log"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Endpoint is an endpoint, local or remote (semantics §13).
type Endpoint struct {
	Node     string            // name of the node it runs on
	Iface    string            // host-side interface; used on its own node only
	Addrs    []netip.Addr      // those it claims (D-19), unmapped, no zone, in API order, no duplicates
	Labels   map[string]string // own labels, projectcalico.org/* included (semantics §10)
	Profiles []string          // profile names in order; their labels are inherited, first profile wins
	Ports    []NamedPort       // declared container ports
	// Sources are prefixes from which it may send although it owns none of their addresses, masked, without duplicates; used
	// on its own node only. They make it no owner (semantics §15).
	Sources []netip.Prefix
	// Created is when it was made, in Unix seconds; 0: not known. Of several that claim something the oldest has it.
	Created uint32
	// Terminating: it is being deleted. Of several endpoints that claim an address it is the last to have it.
	Terminating bool
	// Unconfirmed: Addrs are what an annotation says. They count on the endpoint's own node only, which knows whether it
	// delivers them to Iface.
	Unconfirmed bool
	// HostNetwork: it is a pod in the network of its node, which is no endpoint to policy. It has a Node and nothing else, so that people who
	// ask about the pod are referred to the node.
	HostNetwork bool
}

// UnownableReason returns why no endpoint can own an address (D-19), such as "a loopback address"; empty if one can.
func UnownableReason(a netip.Addr) string {
	switch {
	case a.IsUnspecified():
		return "the unspecified address"
	case a.IsLoopback():
		return "a loopback address"
	case a.IsMulticast():
		return "a multicast address"
	case a.IsLinkLocalUnicast():
		return "a link-local address"
	case a == broadcast:
		return "the broadcast address"
	}
	return ""
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// NamedPort is a port an endpoint declares under a name.
type NamedPort struct {
	Name     string
	Protocol uint8 // IP protocol number
	Port     uint16
}

// Profile gives labels to the endpoints that name it, and rules that apply when no tier decided (kns.<ns>, ksa.<ns>.<sa>).
type Profile struct {
	Labels          map[string]string // inherited by endpoints; already prefixed pcns. or pcsa.
	Ingress, Egress []Rule
}

// Orders of the built-in tiers, and of every Kubernetes NetworkPolicy in its tier (semantics §2, D-15).
const (
	OrderKubeAdmin     = 1000.0
	OrderDefaultTier   = 1000000.0
	OrderKubeBaseline  = 10000000.0
	OrderNetworkPolicy = 1000.0

	TierKubeAdmin    = "kube-admin"
	TierDefault      = "default"
	TierKubeBaseline = "kube-baseline"
)

// NoOrder is the order of a tier or policy that has none: it sorts last.
var NoOrder = math.Inf(1)

// Tier is an ordered group of policies. The tiers default, kube-admin and kube-baseline exist without an update.
type Tier struct {
	Order   float64 // lower first, NoOrder last; ties by name
	Default Action  // Deny or Pass: what happens at its end to traffic no rule decided
}

// PolicyKind is the API kind of a policy, with the distinctions of Calico's keys (semantics §3).
type PolicyKind string

const (
	KindKubernetesNetworkPolicy        PolicyKind = "KubernetesNetworkPolicy" // networking.k8s.io/v1 NetworkPolicy
	KindKubernetesClusterNetworkPolicy PolicyKind = "KubernetesClusterNetworkPolicy"
	KindNetworkPolicy                  PolicyKind = "NetworkPolicy" // projectcalico.org
	KindGlobalNetworkPolicy            PolicyKind = "GlobalNetworkPolicy"
	KindStagedNetworkPolicy            PolicyKind = "StagedNetworkPolicy"
	KindStagedGlobalNetworkPolicy      PolicyKind = "StagedGlobalNetworkPolicy"
	KindStagedKubernetesNetworkPolicy  PolicyKind = "StagedKubernetesNetworkPolicy"
	KindProfile                        PolicyKind = "Profile" // only in a RuleID: the rule of a profile
)

// PolicyKinds are all of them, those of staged policies last.
func PolicyKinds() []PolicyKind {
	return []PolicyKind{KindKubernetesNetworkPolicy, KindKubernetesClusterNetworkPolicy, KindNetworkPolicy, KindGlobalNetworkPolicy, KindProfile,
		KindStagedNetworkPolicy, KindStagedGlobalNetworkPolicy, KindStagedKubernetesNetworkPolicy}
}

// Short is the abbreviation used in traces: knp, kcnp, np, gnp, profile; snp, sgnp, sknp for staged policies.
func (k PolicyKind) Short() string {
	switch k {
	case KindKubernetesNetworkPolicy:
		return "knp"
	case KindKubernetesClusterNetworkPolicy:
		return "kcnp"
	case KindNetworkPolicy:
		return "np"
	case KindGlobalNetworkPolicy:
		return "gnp"
	case KindStagedNetworkPolicy:
		return "snp"
	case KindStagedGlobalNetworkPolicy:
		return "sgnp"
	case KindStagedKubernetesNetworkPolicy:
		return "sknp"
	case KindProfile:
		return "profile"
	}
	return string(k)
}

// PolicyKey names a policy. Names are unique only per kind and namespace.
type PolicyKey struct {
	Kind      PolicyKind
	Namespace string // empty for cluster-wide kinds
	Name      string
}

// SortKey is the string policies of equal order are sorted by, in byte order: "name/namespace/kind". A staged policy is where the one that it
// stands for would be, right behind it if both are there.
func (k PolicyKey) SortKey() string {
	of := k.Enforced()
	text := k.Name + "/" + k.Namespace + "/" + string(of.Kind)
	if of != k {
		text += " (staged)"
	}
	return text
}

// Compare orders by namespace, then kind, then name.
func (k PolicyKey) Compare(o PolicyKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Name, o.Name))
}

// String returns "knp/shop/db", or "gnp/deny-all" for cluster-wide kinds.
func (k PolicyKey) String() string {
	if k.Namespace == "" {
		return k.Kind.Short() + "/" + k.Name
	}
	return k.Kind.Short() + "/" + k.Namespace + "/" + k.Name
}

// Policy is one policy as validated. All defaulting (types, tiers, orders) is done.
type Policy struct {
	Tier     string
	Order    float64            // NoOrder if the object has none
	Selector *selector.Selector // the endpoints it applies to: the effective selector, namespace included; never nil
	// AppliesIngress and AppliesEgress are the policy's types. With a type present and no rules the end of the tier
	// decides that direction (default deny).
	AppliesIngress, AppliesEgress bool
	Staged                        bool         // traced, never enforced
	StagedAction                  StagedAction // of a staged policy; otherwise StagedSet
	Ingress, Egress               []Rule       // in evaluation order
	Packed                        *PackedRules // not nil: has the rules in place of Ingress and Egress, see Pack
}

// Rule is one match and its action (semantics §7). Fields that are present are ANDed; entries of a list are ORed.
type Rule struct {
	Action Action
	// Index is the position of the API object's own rule in its ingress or egress list. One API rule may become
	// several model rules (a Kubernetes rule with ports and peers); all of them carry its Index.
	Index int
	// Name is what the object calls the rule, for people: its annotation "name", or its own name. It decides nothing. Empty: it has none.
	Name        string
	IPVersion   uint8  // 4, 6, or 0 for both
	Protocol    *uint8 // nil: any
	NotProtocol *uint8 // nil: none
	ICMP        *ICMPMatch
	NotICMP     *ICMPMatch
	Source      Entity
	Destination Entity
	// Unmatchable says the rule can never match here, for the reason given (an http match, D-3). It is kept so that
	// explain can show it. Empty for every enforceable rule.
	Unmatchable string
}

// ICMPMatch matches an ICMP or ICMPv6 type, and a code if one is given.
type ICMPMatch struct {
	Type uint8
	Code *uint8 // nil: any
}

// PortRange is an inclusive range of ports; a single port has Lo == Hi.
type PortRange struct{ Lo, Hi uint16 }

// Contains reports whether p is in the range.
func (r PortRange) Contains(p uint16) bool { return r.Lo <= p && p <= r.Hi }

// Entity is one side of a rule. The zero value matches every address and port.
type Entity struct {
	// Nets and NotNets are as written: a non-empty list without an entry of the packet's family makes the rule not
	// match that family (D-9). Prefixes are masked.
	Nets, NotNets []netip.Prefix
	// Selector is the complete positive selector of this side: namespace, service-account and notSelector constraints
	// are folded in (pos && !(neg)). Nil: no constraint. It selects endpoints and network sets, never outside addresses.
	Selector *selector.Selector
	// NotSelector is set only when there is no positive selector: the address must not be in its set, so outside
	// addresses match.
	NotSelector *selector.Selector
	// Ports and NamedPorts are one list: the packet must match one of either. NotPorts likewise: none of either.
	Ports         []PortRange
	NamedPorts    []string
	NotPorts      []PortRange
	NotNamedPorts []string
	// Service selects the endpoints of a Service: as a destination by address and port, as a source by address.
	Service *ServiceKey
	// Nodes selects nodes by their own labels, and so their addresses. A side with it has neither selectors nor a Service.
	Nodes *selector.Selector
}

// NetworkSetID names a NetworkSet, or a GlobalNetworkSet when Namespace is empty.
type NetworkSetID struct{ Namespace, Name string }

func (id NetworkSetID) String() string { return id.Namespace + "/" + id.Name }

// NetworkSet is a labelled list of prefixes that selectors can select.
type NetworkSet struct {
	Nets     []netip.Prefix
	Labels   map[string]string
	Profiles []string
	// LeftOut: Nets cover what the object has, which there is no room for. Rules fail closed for them. No syncer sets it.
	LeftOut bool
}

// ServiceKey names a Service.
type ServiceKey struct{ Namespace, Name string }

func (k ServiceKey) String() string { return k.Namespace + "/" + k.Name }

// Service is what policy, and people who ask about it, need of a Service: the addresses kube-proxy translates.
type Service struct {
	Cluster  []netip.Addr // cluster addresses, which the API server gives out: no endpoint can own them
	External []netip.Addr // external and load-balancer addresses that kube-proxy translates: whatever its author writes
	// Ports are those that clients use; the backends' ports of the same name and protocol are in the EndpointSlices. No
	// verdict depends on them.
	Ports []NamedPort
	// Headless: the cluster gives it no address, so that its name stands for the addresses of its backends. No verdict depends on it.
	Headless bool
}

// Addrs are all addresses that kube-proxy translates. The list is the caller's.
func (s *Service) Addrs() []netip.Addr { return slices.Concat(s.Cluster, s.External) }

// EndpointSliceID names an EndpointSlice.
type EndpointSliceID struct{ Namespace, Name string }

// EndpointSlice holds part of the backends of one Service: every address with every numbered port, ready or not.
type EndpointSlice struct {
	Service ServiceKey
	Addrs   []netip.Addr
	Ports   []NamedPort
	// LeftOut: there is no room for Addrs, so that the object counts as prefixes around them. No syncer sets it.
	LeftOut bool
}

// Node is a cluster node.
type Node struct {
	Addrs  []netip.Addr
	Labels map[string]string
}

// Configuration is configuration of agents that the datastore holds: a FelixConfiguration, for the fields that apply
// here. It counts for every node if it is named "default", for one node if it is named "node." and that node's name,
// and otherwise for the nodes that NodeSelector selects; more particular ones override.
type Configuration struct {
	NodeSelector *selector.Selector // nil for "default" and "node.*"
	Created      int64              // Unix seconds; of two that select a node the older one counts, then the lower name
	// Values are the spec's fields by their names in the API ("defaultEndpointToHostAction"), as text: strings as they
	// are, numbers and booleans as JSON writes them, lists joined by commas, maps as key=value joined by commas in the
	// order of keys. Fields that are absent or null have no entry.
	Values map[string]string
}
