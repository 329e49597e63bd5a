package inspect

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Dataplane is what a dataplane says of itself to tools, in their messages. It is asked between two Applies, by the goroutine
// that owns it, unless a method says otherwise.
type Dataplane interface {
	// Name is what status calls it.
	Name() string
	// Direction describes the policy in force for one direction of an endpoint; zero: there is none. The caller fills
	// in Policies.
	Direction(id model.EndpointID, d model.Direction) Direction
	// Rules are the ordered match tables of an endpoint, ingress first; not ok: there is no such endpoint here. sets gives a
	// set its words by its id; not ok: it has none, and the dataplane may know it as a CIDR list of rules.
	Rules(id model.EndpointID, counts Counts, sets func(model.SetID) (string, bool)) (rows []RuleRow, ok bool)
	// RuleCounts reads the counters of rules, which takes a while. Any goroutine may ask.
	RuleCounts() (Counts, error)
	// Staged are the rules that would decide otherwise than the enforced policies if the staged ones were enforced, each
	// once, with the number of first packets of flows that it would have decided so, in no order.
	Staged(counts Counts) []StagedCount
	// Sets are the sets that the policies in force refer to, by number. The map must not be changed.
	Sets() map[uint32]model.SetID
	// CIDRs is a set that stands for a CIDR list of rules, in words, and its members; nil for other sets.
	CIDRs(id model.SetID) (text string, members []netip.Prefix)
	// NodeAddrs are the node's own addresses, whether or not the datastore has them; nil: they are not known. The list must
	// not be changed.
	NodeAddrs() []netip.Addr
	// Attachments fills in where programs are attached to the endpoints' interfaces. Any goroutine may ask.
	Attachments(rows []EndpointRow) error
}

// StagedCount is what one rule of a staged policy, or the end of its tier, would have decided otherwise. Rule.Staged is set.
type StagedCount struct {
	Rule    model.RuleID
	Allow   bool
	Packets uint64
}

// Counts are packets and bytes by the number of a rule.
type Counts map[uint32]Count

// Count is what a rule has decided.
type Count struct{ Packets, Bytes uint64 }
