// Package plan keeps what shall be enforced and what the kernel has of it, and turns the difference into Plans: kernel
// writes, in an order in which every packet is judged by an old or a new policy at any time.
package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/ids"
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

	sets *ids.Numbering[model.SetID]
	uses map[uint32]*setUse // by set number
	// May have lost their last reference or definition, and are to be looked at. Each entry holds the number.
	review []uint32

	rules    *ids.Numbering[model.RuleID]
	oldRules map[oldRule]uint32 // found in the kernel at the start; numbers of rules not asked for yet
	oldAddrs []netip.Prefix     // found in the kernel at the start, not looked at yet

	lostTables []table.ID // in the kernel at the start, but unknown: to be dropped by the first plan

	endpoints map[model.EndpointID]*endpoint
	stale     map[model.EndpointID]bool // their programs may have to change
	claims    map[netip.Prefix][]model.EndpointID
	ifaces    map[string]model.EndpointID // of endpoints found in the kernel, whose ids may be stand-ins
	folds     map[*model.DirectionPolicy]*fold
	failed    map[EndpointDirection]error
	ledger    *ledger
	back      fallback

	hosts, newHosts []netip.Prefix // this node's addresses as the dataplane reports them

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

// setUse says who needs a set.
type setUse struct {
	defined bool           // Changes announced it and did not take it back
	orphan  bool           // it was defined once, and has members still
	loaded  bool           // its members are those of a Program's NetSets
	nets    []netip.Prefix // those
	joined  int            // so many of nets are members
	named   bool           // the kernel has its name, and classes tell its members apart
	refs    int            // programs
}

// New returns a Compiler that goes on from what a kernel has already; from nil: from an empty one.
func New(o Options, from *Snapshot) *Compiler {
	c := &Compiler{
		limits:    o.Limits,
		classes:   classes.New(),
		sets:      ids.New[model.SetID](1<<31 - 1),
		uses:      map[uint32]*setUse{},
		rules:     ids.New[model.RuleID](65535),
		oldRules:  map[oldRule]uint32{},
		endpoints: map[model.EndpointID]*endpoint{},
		stale:     map[model.EndpointID]bool{},
		claims:    map[netip.Prefix][]model.EndpointID{},
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
func (c *Compiler) HostAddrs(addrs []netip.Addr) {
	c.newHosts = nil
	for _, a := range addrs {
		if !a.IsValid() {
			continue
		}
		a = a.Unmap().WithZone("")
		c.newHosts = append(c.newHosts, netip.PrefixFrom(a, a.BitLen()))
	}
}

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
	c.updateHosts()
	c.inSync = c.inSync || ch.InSync
	if !c.inSync {
		return Plan{}
	}
	return c.plan(len(ch.Endpoints)+len(ch.Sets) > 0)
}

func (c *Compiler) updateSet(id model.SetID, change *model.SetChange) {
	switch id {
	case model.SetServiceAddrs:
		c.updateMarks(classes.MarkService, change)
		return
	case model.SetNodeAddrs:
		c.updateMarks(classes.MarkNode, change)
		return
	}
	num := c.setNumber(id)
	u := c.use(num)
	if change == nil {
		if u.defined {
			u.defined, u.orphan = false, true
			c.sets.Hold(num)
			c.review = append(c.review, num)
		}
		return
	}
	switch {
	case u.orphan: // defined again: all of its members are to come
		u.defined, u.orphan = true, false
		c.classes.Empty(num)
		c.staleAll()
	case !u.defined:
		u.defined = true
		c.sets.Hold(num)
	}
	for _, p := range change.Removed {
		c.classes.Remove(p, num)
	}
	for _, p := range change.Added {
		c.classes.Add(p, num)
	}
}

// updateMarks applies a change of a set that no rule refers to.
func (c *Compiler) updateMarks(m classes.Marks, change *model.SetChange) {
	if change == nil {
		c.classes.Unmark(m)
		return
	}
	for _, p := range change.Removed {
		c.classes.Mark(p, m, false)
	}
	for _, p := range change.Added {
		c.classes.Mark(p, m, true)
	}
}

func (c *Compiler) updateHosts() {
	for _, p := range c.hosts {
		if !slices.Contains(c.newHosts, p) {
			c.classes.Mark(p, classes.MarkHost, false)
		}
	}
	for _, p := range c.newHosts {
		if !slices.Contains(c.hosts, p) {
			c.classes.Mark(p, classes.MarkHost, true)
		}
	}
	c.hosts = c.newHosts
}

func (c *Compiler) use(num uint32) *setUse {
	u := c.uses[num]
	if u == nil {
		u = &setUse{}
		c.uses[num] = u
	}
	return u
}
