package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// refusals handle writes that the kernel refuses, so that a refusal affects as few endpoints as possible. They decide its
// consequences for the parts together, and the time of the retry.
type refusals struct {
	plans.Refusals
	addresses *addresses
	classes   *classSets
	endpoints *endpoints
	rest      []error // of writes on which nothing depends, since the last Apply
}

// note keeps the error of a write on which nothing depends, for the end of this Apply.
func (r *refusals) note(err error) {
	if err != nil {
		r.rest = append(r.rest, err)
	}
}

// retryAddrs tries again to write addresses that were refused, if it is time.
func (r *refusals) retryAddrs() error {
	if len(r.Unwritten) == 0 || !r.Due() {
		return nil
	}
	return r.writeAddrs(r.Unwritten.Changes())
}

// writeAddrs writes changes of addresses. An entry that cannot be written affects that address only. Its old entry is
// removed, since policy might allow the old class packets that it denies the new one. The address then has the class of
// the prefix around it. Endpoints that would allow that class more than the new one are closed.
func (r *refusals) writeAddrs(changes []classes.AddrChange) error {
	if len(changes) == 0 {
		return nil
	}
	for group := range groups(changes) {
		for _, c := range group {
			if c.Gone {
				r.Retry.Room()
			}
			r.addresses.set(c, r.endpoints.roster.interfaceOf(c.Endpoint, r.Planner.Plan.Bind))
		}
		if !r.addresses.write(group, r.classes) {
			continue
		}
		r.Retry.Failed()
		if err := r.closeWide(); err != nil {
			return err
		}
	}
	return nil
}

// closeWide closes endpoints whose policy would allow a missing address more than it should, because the address is judged
// as the prefix around it. It opens endpoints that no longer do.
func (r *refusals) closeWide() error {
	if err := r.endpoints.bar(len(r.Unwritten) > 0); err != nil {
		return err
	}
	if len(r.Unwritten)+len(r.endpoints.closed) == 0 {
		return nil
	}
	return r.endpoints.close(r.Wider(func(p netip.Prefix, cause error) string {
		return fmt.Sprintf("closed, because without the address entry of %s it would allow traffic that policy denies: write map %s: %v", p, addrMap(p), cause)
	}))
}

// withdraw takes a table out of force that does not judge as it should: its endpoints are closed until it can be published again.
func (r *refusals) withdraw(table table.ID, why error) error {
	r.endpoints.entries.tables.lose(table)
	r.Planner.Lose(table, why)
	r.Retry.Failed()
	return r.endpoints.shutJudgedBy(table, why)
}

// busyClasses are those that something in the kernel refers to which could not be removed, or that packets may be at work
// with. Each plan asks for them, and there may be thousands: they are copied only where there are refusals.
func (r *refusals) busyClasses() map[uint32]bool {
	busy := r.Busy()
	if len(busy) == 0 && r.classes.sets.Pending() == 0 {
		return r.classes.busy
	}
	maps.Copy(busy, r.classes.busy)
	for _, key := range r.classes.sets.Unwritten() {
		busy[key.Class] = true
	}
	return busy
}

// missing returns an error with the writes that the kernel refuses and the endpoints that this closes. Notes for one
// report are cleared.
func (r *refusals) missing() error {
	errs := r.rest
	r.rest = nil
	return errors.Join(append(errs, r.addresses.err())...)
}
