package plan

import (
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Plan is a list of kernel writes, to be carried out in the order of its fields. Every field is a difference to the
// state after the previous plan. Carrying out a prefix of it leaves every packet judged by an old or a new policy.
type Plan struct {
	SetNames  map[uint32]model.SetID  // new numbers of sets
	RuleNames map[uint32]model.RuleID // new numbers of rules
	Classes   []classes.Class         // new classes
	Tables    []*table.Table          // new tables: every table named below that was not in an earlier plan
	Enlarged  []*table.Table          // tables in the kernel that need more room for rows; their rows stay
	Rows      []RowChange             // rows of new classes in tables that are already in the kernel
	Grow      []Binding               // same policy, a table with more rows: bind before addresses move
	Addrs     []classes.AddrChange    // addresses that enter, move, change flags or go; in the order of Classes.Diff
	Bind      []Binding               // endpoint-directions that get another policy; new endpoints, and shadows
	Unbind    []model.EndpointID      // endpoints that left
	Rejudge   []EndpointDirection     // bound as before, but a moved address may be judged differently: new generation
	// State to remove, once nothing bound refers to it.
	DropTables  []table.ID
	LateAddrs   []classes.AddrChange
	DropClasses []uint32
	DropSets    []uint32
	DropRules   []uint32
	// FollowUp: another Update, without changes if need be, has to clean up the state that is kept for Withhold until
	// then, or to move addresses whose classes the kernel did not know at the start.
	FollowUp bool
	// More: a large policy takes more plans. Another Update, without changes if there are none, continues it.
	More bool
}

// RowChange says that a table's row for a class, unused so far, is Row.
type RowChange struct {
	Table table.ID
	Class uint32
	Row   uint16
}

// EndpointDirection is one direction of one endpoint.
type EndpointDirection struct {
	Endpoint  model.EndpointID
	Direction model.Direction
}

// Binding says which tables judge an endpoint. Endpoint is its current state, for interface and addresses. A table of 0
// is not in the kernel: the endpoint is closed.
type Binding struct {
	Endpoint        *model.EndpointPolicy
	Ingress, Egress table.ID
}
