package model

import (
	"net/netip"
	"strings"
)

// SetID names a set of addresses. Equal definitions have equal ids, so that rules share sets. Ids that start with '@'
// are reserved. Others have a prefix that ends with ':', the definition, and if there are sets by port '/' and the port.
type SetID string

const (
	// SetServiceAddrs holds every address that may be translated by kube-proxy: the cluster, external and load-balancer
	// addresses of all Services. No rule refers to it; the dataplane marks its members.
	SetServiceAddrs SetID = "@service-addresses"
	// SetNodeAddrs holds this node's own addresses as the datastore knows them. No rule refers to it.
	SetNodeAddrs SetID = "@node-addresses"
	// SetOwnedAddrs holds, of the addresses in Sources of this node's endpoints, those of endpoints, nodes and Services of the
	// whole cluster: no other endpoint may send from them. No rule refers to it. It is there while there are any Sources.
	SetOwnedAddrs SetID = "@owned-addresses"
)

// PrefixPast begins the ids of sets of what other sets lack, because it is past a limit. Maybe no rule refers to such a set.
const PrefixPast = "out:"

// IsPast reports whether a rule that refers to the set means by it what other sets lack.
func (id SetID) IsPast() bool { return strings.HasPrefix(string(id), PrefixPast) }

// Definition returns what the ids of all sets that rules mean by the same words have in common: of a named port the sets of each number, and
// the set of what these lack. Empty: the set is reserved.
func (id SetID) Definition() string {
	_, rest, _ := strings.Cut(string(id), ":")
	definition, _, _ := strings.Cut(rest, "/")
	return definition
}

// Changes is the difference between two flushes, and nothing else.
type Changes struct {
	Endpoints map[EndpointID]*EndpointPolicy // local endpoints only; nil: the endpoint left this node
	Sets      map[SetID]*SetChange           // never nil
	InSync    bool                           // the first full snapshot has been seen
}

// SetChange is the difference of one set between two flushes. The first change of a set adds all of its members; a
// set without members is announced by an empty change. Prefixes are masked; a prefix is never in both lists.
//
// Gone: no rule refers to the set any more, nor did one before it was refused. Added and Removed are what has changed until then: policies
// in force may refer to the set until those of the same Changes are. The lists are shared with other changes and with the graph, and
// must not be changed.
type SetChange struct {
	Added, Removed []netip.Prefix
	Gone           bool
}

// EndpointPolicy is everything a dataplane must know about one local endpoint. It is immutable; an unchanged endpoint
// keeps the same pointer from flush to flush.
type EndpointPolicy struct {
	ID      EndpointID
	Iface   string
	Addrs   []netip.Addr
	Sources []netip.Prefix   // as in Endpoint
	Ingress *DirectionPolicy // never nil; of a host endpoint: what the host itself receives
	Egress  *DirectionPolicy // never nil; of a host endpoint: what the host itself sends
	Host    *HostPolicy      // nil for workloads
}

// HostPolicy judges, at a host endpoint, the packets that Ingress and Egress do not judge. Nil: nothing judges there.
type HostPolicy struct {
	// PreDNAT judges what arrives, before its destination is translated, whether it is for the host or forwarded.
	PreDNAT *DirectionPolicy
	// ForwardIngress and ForwardEgress judge what the host forwards, as it arrives at the interface and as it leaves by it.
	ForwardIngress, ForwardEgress *DirectionPolicy
	// UntrackedIngress and UntrackedEgress judge each packet before connections are tracked.
	UntrackedIngress, UntrackedEgress *DirectionPolicy
}

// DirectionPolicy is the ordered policy of one direction. Immutable; endpoints with the same policy share the pointer.
type DirectionPolicy struct {
	Direction Direction
	Tiers     []TierPolicy   // only tiers with a policy for this direction, in evaluation order
	Profiles  []*PolicyRules // in order; reached when every tier passed; no match in any of them: deny
	// Shadow: it is the policy as if staged policies were enforced (pkg/staged), and says to which of them verdicts are due.
	Shadow bool
	Credit *Credit // for that no profile matches
}

// Credit names the staged policy to which a verdict of a shadow is due. Nil: the verdict is that of the enforced policy.
type Credit struct {
	Tier   string
	Policy PolicyKey
}

// TierPolicy is one tier as it applies to one endpoint and direction.
type TierPolicy struct {
	Name string
	// Default applies at the end of the tier when at least one policy in Policies is not staged.
	Default  Action
	Policies []*PolicyRules // in evaluation order
	Credit   *Credit        // of a shadow, for the end of the tier
}

// PolicyRules are the rules of one policy (or profile) for one direction, sets resolved. Immutable; shared by every
// endpoint it applies to.
type PolicyRules struct {
	Key    PolicyKey // Kind is KindProfile for a profile
	Staged bool
	// StagedAction is that of the Policy. A StagedDelete has no rules. It stands directly behind the enforced policy that
	// PolicyKey.Enforced names, and marks that policy as absent in the shadow: a staged policy deletes it, or replaces it
	// and does not apply here.
	StagedAction StagedAction
	Rules        []MatchRule
	// Refused says why its rules were not resolved: that would take resources that others need. Unless the policy is
	// staged, its endpoints keep the policy they had, or are closed if they had none. Empty: the rules were resolved.
	Refused string
	Credit  *Credit // of a shadow, for the rules
}

// MatchRule is a Rule whose selectors, named ports and services have become sets of addresses.
type MatchRule struct {
	Action      Action
	Index       int    // as in Rule
	Name        string // as in Rule
	IPVersion   uint8
	Protocol    *uint8
	NotProtocol *uint8
	ICMP        *ICMPMatch
	NotICMP     *ICMPMatch
	Source      Side
	Destination Side
	Unmatchable string // as in Rule
}

// MatchesAll reports whether the rule has no condition, so that it matches every packet.
func (r *MatchRule) MatchesAll() bool {
	return r.IPVersion == 0 && r.Protocol == nil && r.NotProtocol == nil && r.ICMP == nil && r.NotICMP == nil &&
		r.Unmatchable == "" && r.Source.matchesAll() && r.Destination.matchesAll()
}

func (s *Side) matchesAll() bool {
	return len(s.In)+len(s.NotIn)+len(s.NotNets) == 0 && s.Nets == nil && s.Ports == nil && s.NotPorts == nil
}

// Side is one side of a MatchRule. The zero value matches every address and port.
type Side struct {
	In    []SetID // the address must be in all of these
	NotIn []SetID // and in none of these
	// Nets: nil or the address must be in one. NotNets: in none. With D-9's reading of lists that lack a family.
	Nets, NotNets []netip.Prefix
	Ports         *PortMatch // nil: no constraint; otherwise the packet must match it
	NotPorts      *PortMatch // nil: no constraint; otherwise the packet must not match it
}

// PortMatch matches a packet whose port on this side is in Ranges, or whose protocol, port and address on this side
// fit one entry of Named. With both empty it matches nothing.
type PortMatch struct {
	Ranges []PortRange
	Named  []PortSet
}

// PortSet is the part of a named-port or service set that has one protocol and port number: the addresses that
// expose it. Named ports are split this way so that everything a dataplane matches is plain numbers and addresses.
type PortSet struct {
	Protocol uint8
	Port     uint16
	Set      SetID
}

// ListKey identifies a list of prefixes by its memory. Changes share lists, so equal keys mean equal lists as long as both are in use; equal
// lists may have different keys. The zero value is that of every empty list. Comparable.
type ListKey struct {
	first *netip.Prefix
	len   int
}

// ListKeyOf returns the key of a list.
func ListKeyOf(list []netip.Prefix) ListKey {
	if len(list) == 0 {
		return ListKey{}
	}
	return ListKey{&list[0], len(list)}
}
