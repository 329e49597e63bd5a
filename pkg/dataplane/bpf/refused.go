package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// refusals handle writes that the kernel refuses, so that a refusal affects as few endpoints as possible. They decide its
// consequences for the parts together, and the time of the retry.
type refusals struct {
	plans     *planner
	addresses *addresses
	classes   *classSets
	endpoints *endpoints
	retry     *backoff
	rest      []error // of writes on which nothing depends, since the last Apply
}

// note keeps the error of a write on which nothing depends, for the end of this Apply.
func (r *refusals) note(err error) {
	if err != nil {
		r.rest = append(r.rest, err)
	}
}

// retryDue reports whether it is time to try refused writes again.
func (r *refusals) retryDue() bool {
	if !r.plans.failing && len(r.addresses.unwritten) == 0 {
		r.retry.reset()
		return false
	}
	return r.retry.due()
}

// retryTables has tables made again that were refused, if it is time.
func (r *refusals) retryTables() {
	if r.retryDue() && r.plans.failing && r.plans.retry() {
		r.retry.failed()
	}
}

// retryAddrs tries again to write addresses that were refused, if it is time.
func (r *refusals) retryAddrs() error {
	if len(r.addresses.unwritten) == 0 || !r.retryDue() {
		return nil
	}
	return r.writeAddrs(r.addresses.refused())
}

// writeAddrs writes changes of addresses. An entry that cannot be written affects that address only. Its old entry is
// removed, since policy might allow the old class packets that it denies the new one. The address then has the class of
// the prefix around it. Endpoints that would allow that class more than the new one are closed.
func (r *refusals) writeAddrs(changes []classes.AddrChange) error {
	for group := range groups(changes) {
		for _, c := range group {
			if c.Gone {
				r.retry.room()
			}
			r.addresses.set(c, r.endpoints.roster.interfaceOf(c.Endpoint, r.plans.plan.Bind))
		}
		if !r.addresses.write(group, r.classes) {
			continue
		}
		r.retry.failed()
		if err := r.closeWide(); err != nil {
			return err
		}
	}
	return nil
}

// closeWide closes the endpoints that would take a missing address for one that they allow more than that address, and
// opens those that need not be closed for that any more.
func (r *refusals) closeWide() error {
	missing := r.addresses.unwritten
	if err := r.endpoints.bar(len(missing) > 0); err != nil {
		return err
	}
	if len(missing)+len(r.endpoints.closed) == 0 {
		return nil
	}
	now, known := map[model.EndpointID]string{}, map[[2]uint32]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(missing), netip.Prefix.Compare) {
		taken, is := r.takenFor(p), missing[p].change.Class
		if missing[p].change.Gone {
			is = r.plans.compiler.Around(p, r.addresses.missing)
		}
		if known[[2]uint32{taken, is}] {
			continue
		}
		known[[2]uint32{taken, is}] = true
		for _, id := range r.plans.compiler.Wider(taken, is) {
			if now[id] == "" {
				now[id] = fmt.Sprintf("closed, because without the address entry of %s it would allow traffic that policy denies: write map %s: %v", p, addrMap(p), missing[p].cause)
			}
		}
	}
	return r.endpoints.close(now)
}

// takenFor is the class that packets find for an address without an entry, or with one that could not be removed.
func (r *refusals) takenFor(p netip.Prefix) uint32 {
	if info, ok := r.addresses.believed(p); ok {
		return info.Class
	}
	return r.plans.compiler.Around(p, r.addresses.missing)
}

// busyClasses are those that something in the kernel refers to which could not be removed, or that packets may be at work
// with.
func (r *refusals) busyClasses() map[uint32]bool {
	busy := r.classes.busy()
	for p := range r.addresses.unwritten {
		if info, ok := r.addresses.believed(p); ok {
			busy[info.Class] = true
		}
	}
	for _, key := range r.classes.sets.Unwritten() {
		busy[key.Class] = true
	}
	return busy
}

// withhold removes the tables that could not be published from the plan.
func (r *refusals) withhold(tables map[table.ID]error) {
	if len(tables) == 0 {
		return
	}
	r.plans.withhold(tables)
	r.retry.failed()
}

// missing returns an error with the writes that the kernel refuses and the endpoints that this closes. Notes for one
// report are cleared.
func (r *refusals) missing() error {
	errs := r.rest
	r.rest = nil
	return errors.Join(append(errs, r.addresses.err())...)
}
