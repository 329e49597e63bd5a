package model

import (
	"fmt"
	"net/netip"
	"strconv"
)

// IP protocol numbers that policy knows by name.
const (
	ProtoICMP    uint8 = 1
	ProtoTCP     uint8 = 6
	ProtoUDP     uint8 = 17
	ProtoICMPv6  uint8 = 58
	ProtoSCTP    uint8 = 132
	ProtoUDPLite uint8 = 136
)

// HasPorts reports whether rules can match ports of the protocol: TCP, UDP and SCTP.
func HasPorts(proto uint8) bool {
	return proto == ProtoTCP || proto == ProtoUDP || proto == ProtoSCTP
}

// ProtocolName is the name policy has for an IP protocol, in lower case, or its number.
func ProtocolName(p uint8) string {
	switch p {
	case ProtoICMP:
		return "icmp"
	case ProtoTCP:
		return "tcp"
	case ProtoUDP:
		return "udp"
	case ProtoICMPv6:
		return "icmpv6"
	case ProtoSCTP:
		return "sctp"
	case ProtoUDPLite:
		return "udplite"
	}
	return strconv.Itoa(int(p))
}

// Packet describes the first packet of a flow, which is what policy judges. Addresses are those after Service
// translation, both of the same family and unmapped.
type Packet struct {
	Src, Dst           netip.Addr
	Protocol           uint8
	SrcPort, DstPort   uint16 // zero unless HasPorts(Protocol)
	ICMPType, ICMPCode uint8  // zero unless Protocol is ICMP on IPv4 or ICMPv6 on IPv6
}

// Point is the kind of place in a policy where a verdict was reached.
type Point uint8

const (
	AtRule      Point = iota + 1 // a rule of a policy or profile
	AtEndOfTier                  // no rule of the tier matched and its default action was applied
	AtNoProfile                  // every tier passed or none applied, and no profile rule matched: deny
	AtSelf                       // traffic of a pod to itself: always allowed (D-16)
	AtHost                       // from the pod's own node: always allowed (semantics §15)
	AtBehind                     // only Staged: something that is not staged, behind a staged policy that passes on or removes rules
)

// RuleID names the rule, or the end of tier, behind a verdict. Comparable.
type RuleID struct {
	Point     Point
	Direction Direction
	Tier      string    // empty for profiles and AtNoProfile
	Policy    PolicyKey // AtEndOfTier: the first policy, in evaluation order, that isolates; zero for AtNoProfile
	Index     int       // AtRule: the API object's rule (Rule.Index). AtBehind: 1 for allowed packets. Otherwise 0
	// Staged: it would decide if all staged policies of the endpoint were enforced. Policy is a staged one, to which the
	// verdict is due.
	Staged bool
}

// String returns the form used in traces and in the corpus: "default/knp/shop/db#ingress[0]",
// "default/knp/shop/db#end-of-tier", "profile/kns.shop#egress[0]", "no-profile-match", "self", "host"; of staged policies
// "staged:ingress:default/sknp/shop/db#end-of-tier".
func (r RuleID) String() string {
	pre := ""
	if r.Staged {
		pre = stagedPrefix(r.Direction)
	}
	if r.Tier != "" {
		pre += r.Tier + "/"
	}
	switch r.Point {
	case AtRule:
		return pre + r.Policy.String() + "#" + r.Direction.String() + "[" + strconv.Itoa(r.Index) + "]"
	case AtEndOfTier:
		return pre + r.Policy.String() + "#end-of-tier"
	case AtNoProfile:
		return "no-profile-match"
	case AtSelf:
		return "self"
	case AtHost:
		return "host"
	case AtBehind:
		return pre + r.Policy.String() + "#" + behindText[r.Index&1]
	}
	return fmt.Sprintf("Point(%d)", uint8(r.Point))
}

// behindText are the places of AtBehind, by Index.
var behindText = [2]string{"denied behind it", "allowed behind it"}

// Verdict is the answer of one endpoint and direction to one packet.
type Verdict struct {
	Allow  bool
	By     RuleID   // what decided
	Passed []RuleID // Pass rules and passing ends of tier on the way, in order
	Logged []RuleID // Log rules on the way, in order
}
