// Package plan keeps the desired and the applied policy of endpoints, and turns the difference into Plans: kernel
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

// Options configure a Compiler.
type Options struct {
	Limits table.Limits // of every table
	Budget Budget       // limits on the resources that endpoints share; zero: no limits
	// Confirm keeps what a Plan replaces until the next Update, so that Withhold can go back to it.
	Confirm bool
	// StandIns lets a table judge a new class by the row of another one, where that is no wider, until it can be made again. Only for dataplanes
	// whose tables no later agent goes on with: it would not see that the row is not the class's own.
	StandIns bool
}

// Compiler keeps the desired state of all local endpoints and sets, and what the kernel has of it, and turns the
// difference into Plans. It takes for granted that each Plan is carried out completely before the next. Not safe for
// concurrent use; the Tables it hands out change with the Plans that follow (Table.SetRow).
type Compiler struct {
	inSync    bool
	classes   *classes.Classes
	addrs     *addresses
	sets      *setNumbers
	rules     *ruleNumbers
	programs  *programs
	ledger    *ledger
	pace      *pace
	policies  *policies
	failures  *failures
	endpoints *endpoints
	assigned  *assignment
	back      *fallback
	crowd     *crowd
}

// New returns a Compiler that starts from the state of a kernel; nil: from an empty kernel.
func New(o Options, from *Snapshot) *Compiler {
	all := classes.New()
	c := &Compiler{
		classes:  all,
		addrs:    newAddresses(all),
		sets:     newSetNumbers(all),
		rules:    newRuleNumbers(),
		ledger:   newLedger(o.Budget),
		pace:     &pace{limit: o.Limits.Open, limitPart: o.Limits.Part, limitMake: o.Limits.Make},
		failures: newFailures(),
		back:     &fallback{confirm: o.Confirm},
		crowd:    newCrowd(o.Budget),
	}
	c.programs = newPrograms(o.Limits, all, c.sets, c.rules)
	c.programs.standIns = o.StandIns
	c.policies = newPolicies(c.sets, c.rules, c.programs, c.ledger, c.pace)
	c.endpoints = newEndpoints(c.addrs, c.policies, c.failures)
	c.assigned = newAssignment(c.endpoints, c.sets, c.policies, c.ledger, c.failures)
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
	c.back.confirmed()
	c.sets.Reuse()
	c.rules.Reuse()
	c.classes.Reuse()
	c.crowd.lower(c.classes)
	for _, id := range slices.Sorted(maps.Keys(ch.Sets)) {
		c.updateSet(id, ch.Sets[id])
		c.crowd.note(id, ch.Sets[id])
	}
	c.sets.changeMembers()
	for _, id := range slices.SortedFunc(maps.Keys(ch.Endpoints), model.EndpointID.Compare) {
		c.endpoints.update(id, ch.Endpoints[id])
		c.endpoints.shadows.note(id, ch.Endpoints[id])
	}
	c.addrs.markHosts()
	c.inSync = c.inSync || ch.InSync
	if !c.inSync {
		return Plan{}
	}
	changed := len(ch.Endpoints)+len(ch.Sets) > 0
	if !changed { // no change waits for staged policies
		for id, policy := range c.endpoints.shadows.due() {
			c.endpoints.update(id, policy)
		}
	}
	return c.plan(changed)
}

// Close gives up the work that takes several plans. No Update may follow.
func (c *Compiler) Close() {
	c.policies.close()
	c.programs.close()
}

func (c *Compiler) updateSet(id model.SetID, change *model.SetChange) {
	switch {
	case id == model.SetServiceAddrs:
		c.addrs.mark(classes.MarkService, change)
	case id == model.SetOwnedAddrs:
		c.addrs.mark(classes.MarkOwned, change)
	case id == model.SetNodeAddrs:
		c.addrs.mark(classes.MarkNode, change)
	case c.sets.update(id, change):
		c.endpoints.staleAll()
	}
}
