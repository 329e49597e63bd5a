package explain

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Mismatch is the first clause of a rule that a packet does not fit.
type Mismatch struct {
	Clause   string   `json:"clause"`             // see the constants
	Side     string   `json:"side,omitempty"`     // source or destination; empty: the clause is about the whole packet
	Excluded bool     `json:"excluded,omitempty"` // the packet has what the rule excludes; else it lacks what the rule wants
	Packet   string   `json:"packet,omitempty"`   // what the packet has
	Rule     []string `json:"rule,omitempty"`     // what the rule names
	text     string
}

// Clauses of rules.
const (
	ClauseNone      = "unenforceable" // the rule can never match here
	ClauseIPVersion = "ipVersion"
	ClauseProtocol  = "protocol"
	ClauseICMP      = "icmp"
	ClauseMembers   = "members" // of a selector or Service
	ClauseNetworks  = "networks"
	ClausePorts     = "ports"
)

// nearness is the order of the clauses of a rule: those that are compared first are the farthest. Of two peers that an address is not
// in, neither is nearer.
var nearness = map[string]int{ClauseNone: 0, ClauseIPVersion: 1, ClauseProtocol: 2, ClauseICMP: 3, ClauseMembers: 4, ClauseNetworks: 4, ClausePorts: 6}

// Nearness is the larger the more of the rule the packet fits. The nearest is nil, that of a rule that matches.
func (m *Mismatch) Nearness() int {
	const ofDestination, matches = 7, 14
	if m == nil {
		return matches
	}
	n := nearness[m.Clause]
	if m.Excluded {
		n++
	}
	if m.Side == "destination" {
		n += ofDestination
	}
	return n
}

// String is one line for people; empty for nil.
func (m *Mismatch) String() string {
	if m == nil {
		return ""
	}
	return m.text
}

// describe is m with its line for people.
func (m Mismatch) describe(format string, args ...any) *Mismatch {
	m.text = fmt.Sprintf(format, args...)
	return &m
}

// most is how many entries of a list a line for people names.
const most = 6

func portTexts(m *model.PortMatch, sets Sets) []string {
	var parts []string
	for _, r := range m.Ranges {
		if r.Lo == r.Hi {
			parts = append(parts, fmt.Sprint(r.Lo))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", r.Lo, r.Hi))
		}
	}
	for i, n := range m.Named { // a tenant's pods may give a name 128 numbers
		if i == most {
			return append(parts, fmt.Sprintf("%d more numbers of a port's name", len(m.Named)-most))
		}
		parts = append(parts, fmt.Sprintf("%d/%s of {%s}", n.Port, ProtocolName(n.Protocol), setText(n.Set, sets)))
	}
	return parts
}

func netTexts(nets []netip.Prefix) []string {
	var parts []string
	for _, n := range nets {
		parts = append(parts, n.String())
	}
	return parts
}

func shortened(parts []string) string {
	if len(parts) > most {
		parts = append(parts[:most:most], fmt.Sprintf("%d more", len(parts)-most))
	}
	return strings.Join(parts, ", ")
}

func setText(id model.SetID, sets Sets) string {
	if t, ok := sets.SetText(id); ok {
		return t
	}
	return string(id)
}

// ProtocolName is the name policy has for an IP protocol, in lower case, or its number.
func ProtocolName(p uint8) string { return model.ProtocolName(p) }
