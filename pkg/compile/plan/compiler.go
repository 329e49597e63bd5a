// Package plan keeps what shall be enforced and what the kernel has of it, and turns the difference into Plans: kernel
// writes, in an order in which every packet is judged by an old or a new policy at any time.
package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Options are what can be chosen about a Compiler.
type Options struct {
	Limits table.Limits // of every table
	Budget Budget       // of what endpoints share; zero: no limits
	// Confirm keeps what a Plan replaces until the next Update, so that Withhold can go back to it.
	Confirm bool
}

// Compiler keeps the desired state of all local endpoints and sets, and what the kernel has of it, and turns the
// difference into Plans. It takes for granted that each Plan is carried out completely before the next. Not safe for
// concurrent use; the Tables it hands out change with the Plans that follow (Table.SetRow).
type Compiler struct {
	limits  table.Limits
	inSync  bool
	classes *classes.Classes
	addrs   *addresses
	sets    *setNumbers
	rules   *ruleNumbers

	lostTables []table.ID // in the kernel at the start, but unknown: to be dropped by the first plan

	endpoints map[model.EndpointID]*endpoint
	stale     map[model.EndpointID]bool   // their programs may have to change
	ifaces    map[string]model.EndpointID // of endpoints found in the kernel, whose ids may be stand-ins
	folds     map[*model.DirectionPolicy]*fold
	failed    map[EndpointDirection]error
	ledger    *ledger
	back      fallback

	programs  []*program // in order of creation; those nobody wants go at the end of each plan
	byHash    map[uint64][]*program
	lastID    table.ID
	planned   bool                      // there was a plan
	plans     uint64                    // how many
	whole     bool                      // the plan in the making has changes, or rests: it leaves what is large to a later one
	resting   bool                      // see Rest
	mostClass uint32                    // see highest
	toExpand  int                       // so many rules it may still expand
	making    map[*variant]bool         // those that are being expanded
	part      map[model.EndpointID]bool // their policies are: they are looked at again in the next plan
	waiting   map[model.EndpointID]bool // what they are to have is not in the kernel yet
}

// New returns a Compiler that goes on from what a kernel has already; from nil: from an empty one.
func New(o Options, from *Snapshot) *Compiler {
	all := classes.New()
	c := &Compiler{
		limits:    o.Limits,
		classes:   all,
		addrs:     newAddresses(all),
		sets:      newSetNumbers(all),
		rules:     newRuleNumbers(),
		endpoints: map[model.EndpointID]*endpoint{},
		stale:     map[model.EndpointID]bool{},
		ifaces:    map[string]model.EndpointID{},
		folds:     map[*model.DirectionPolicy]*fold{},
		failed:    map[EndpointDirection]error{},
		ledger:    newLedger(o.Budget),
		back:      fallback{confirm: o.Confirm, barred: map[EndpointDirection]error{}, full: map[EndpointDirection]bytesUsed{}},
		byHash:    map[uint64][]*program{},
		waiting:   map[model.EndpointID]bool{},
		making:    map[*variant]bool{},
		part:      map[model.EndpointID]bool{},
	}
	if from != nil {
		c.adopt(from)
	}
	return c
}

// HostAddrs tells this node's own addresses, all of them; they are marked with the next Update, beside those in
// model.SetNodeAddrs.
func (c *Compiler) HostAddrs(addrs []netip.Addr) { c.addrs.setHosts(addrs) }

// Update takes changes in and returns the kernel writes they ask for. Until changes are in sync it only collects them,
// and the Plan is empty.
func (c *Compiler) Update(ch model.Changes) Plan {
	c.confirm()
	c.sets.Reuse()
	c.rules.Reuse()
	c.classes.Reuse()
	for _, id := range slices.Sorted(maps.Keys(ch.Sets)) {
		c.updateSet(id, ch.Sets[id])
	}
	for _, id := range slices.SortedFunc(maps.Keys(ch.Endpoints), model.EndpointID.Compare) {
		c.updateEndpoint(id, ch.Endpoints[id])
	}
	c.addrs.markHosts()
	c.inSync = c.inSync || ch.InSync
	if !c.inSync {
		return Plan{}
	}
	return c.plan(len(ch.Endpoints)+len(ch.Sets) > 0)
}

func (c *Compiler) updateSet(id model.SetID, change *model.SetChange) {
	switch {
	case id == model.SetServiceAddrs:
		c.addrs.mark(classes.MarkService, change)
	case id == model.SetNodeAddrs:
		c.addrs.mark(classes.MarkNode, change)
	case c.sets.update(id, change):
		c.staleAll()
	}
}
