// Package match flattens the policy of one direction of an endpoint into a Program, an ordered match table, and interprets
// it as the BPF programs do.
package match

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Program is the ordered match table of one endpoint-direction: tiers, policies, ends of tier and profiles flattened
// into one list that ends with an entry that matches everything.
type Program struct {
	Shadow bool // made from a model.DirectionPolicy with Shadow
	Rules  []bpf.Rule
	// IDs names the API rule or end of tier behind each entry; parallel to Rules. A RULE_SKIP entry has the id of the
	// rule it is a clause of.
	IDs []model.RuleID
	// Sets are the ids of all sets that Rules refers to, in no particular order, without duplicates.
	Sets []model.SetID
	// NetSets defines those of Sets that stand for a CIDR list of a rule. Their ids are derived from their content.
	NetSets map[model.SetID][]netip.Prefix
}

// Numbers gives sets and rules the small numbers the kernel knows them by. The same id always gets the same number
// while it is in use. Set numbers start at 1. A rule number of 0 means "not counted" (the numbers have run out).
type Numbers interface {
	Set(model.SetID) uint32
	Rule(model.RuleID) uint32
}

// Local answers for the endpoint's own addresses, which are constant and folded into its Program.
type Local interface {
	// Addr is the endpoint's own address of the family (4 or 6); not ok if it has none, then rules of that family can
	// only concern traffic that never is this endpoint's and are left out.
	Addr(family uint8) (addr netip.Addr, ok bool)
	// In reports whether that address is a member of the set.
	In(family uint8, set model.SetID) bool
}
