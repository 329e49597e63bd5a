// Package compile turns the policy of local endpoints into what the BPF programs consult: an ordered match table for
// each endpoint-direction, equivalence classes of addresses, and decision tables in which the verdict of any packet is
// one cell (docs/datapath.md). It is pure: no I/O, no concurrency, no clock; equal input gives equal output.
//
//   - expand.go: DirectionPolicy -> Program, the ordered match table
//   - table.go: Program and classes -> Table, the decision table
//   - eval.go: what the programs do with a Table, in Go
//   - classes.go: sets and their members -> classes and the class of every address
//   - compiler.go: model.Changes -> Plan, the kernel writes in their order
package compile

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Class ids of addresses in no set at all.
const (
	ClassNone4 uint32 = 0
	ClassNone6 uint32 = 1
)

// Class is a set of addresses that are members of exactly the same sets, so that no rule on this node can tell them
// apart. The classes ClassNone4 and ClassNone6 always exist and have no sets.
type Class struct {
	ID     uint32
	Family uint8    // 4 or 6
	Sets   []uint32 // set numbers, ascending, from 1
}

// Program is the ordered match table of one endpoint-direction: tiers, policies, ends of tier and profiles flattened
// into one list that ends with an entry that matches everything.
type Program struct {
	Rules []bpf.Rule
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

// Plan is a list of kernel writes, to be carried out in the order of its fields. Every field is a difference to the
// state after the previous plan. Carrying out a prefix of it leaves every packet judged by an old or a new policy.
type Plan struct {
	SetNames  map[uint32]model.SetID  // new numbers of sets
	RuleNames map[uint32]model.RuleID // new numbers of rules
	Classes   []Class                 // new classes
	Tables    []*Table                // new tables: every table named below that was not in an earlier plan
	Enlarged  []*Table                // tables in the kernel that need more room for rows; what they have stays
	Rows      []RowChange             // rows of new classes in tables that are already in the kernel
	Grow      []Binding               // same policy, a table with more rows: bind before addresses move
	Addrs     []AddrChange            // addresses that enter, move, change flags or go; in the order of Classes.Diff
	Bind      []Binding               // endpoint-directions that get another policy; new endpoints
	Unbind    []model.EndpointID      // endpoints that left
	Rejudge   []EndpointDirection     // bound as before, but a moved address may be judged differently: new generation
	// What is left over, once nothing bound refers to it.
	DropTables  []TableID
	LateAddrs   []AddrChange
	DropClasses []uint32
	DropSets    []uint32
	DropRules   []uint32
	// Unsettled: another Update, without changes if need be, is to clean up what is kept for Withhold until then.
	Unsettled bool
	// More: a large policy takes more plans. Another Update, without changes if there are none, goes on with it.
	More bool
}

// RowChange says that a table's row for a class, unused so far, is Row.
type RowChange struct {
	Table TableID
	Class uint32
	Row   uint16
}

// AddrChange is the new entry of an address (a full-length prefix) or prefix; Gone: it has none any more.
type AddrChange struct {
	Prefix netip.Prefix
	Class  uint32
	Flags  AddrFlags
	// Endpoint owns the address if Flags has AddrEndpoint.
	Endpoint model.EndpointID
	Gone     bool
}

// AddrFlags are bits of an address entry besides its class; values as in bpf (ADDR_*).
type AddrFlags uint32

// EndpointDirection is one direction of one endpoint.
type EndpointDirection struct {
	Endpoint  model.EndpointID
	Direction model.Direction
}

// Binding says which tables judge an endpoint. Endpoint is its current state, for interface and addresses. A table of 0
// is not in the kernel: the endpoint is closed.
type Binding struct {
	Endpoint        *model.EndpointPolicy
	Ingress, Egress TableID
}

// TableID is the compiler's name of one table. Never reused while an agent runs; 0 is none.
type TableID uint32
