package iptables

import (
	"fmt"
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
	endpoints *endpoints
}

// retryAddrs tries again to write addresses that were refused, if it is time.
func (r *refusals) retryAddrs() error {
	if len(r.Unwritten) == 0 || !r.Due() {
		return nil
	}
	return r.writeAddrs(r.Unwritten.Changes())
}

// writeAddrs writes changes of addresses. One that cannot be written affects that address only: it has the class of the prefix
// around it. Endpoints that would allow that class more than the address's own are closed.
func (r *refusals) writeAddrs(changes []classes.AddrChange) error {
	if len(changes) == 0 || !r.addresses.write(changes) {
		return nil
	}
	r.Retry.Failed()
	return r.closeWide()
}

// closeWide closes the endpoints that would allow an address without an entry more than policy allows it, because they judge it by
// the class of the prefix around it. Endpoints for which that no longer holds are opened by admit.
func (r *refusals) closeWide() error {
	now := r.Wider(func(p netip.Prefix, cause error) string {
		return fmt.Sprintf("closed, because without the entry of %s in the set of classes it would allow traffic that policy denies: %v", p, cause)
	})
	return r.endpoints.closeFor(now)
}

// classFound returns the class that packets find for an address once the plan is complete. An entry that could not be written, for
// want of room in marks for example, has the class of the prefix around it: the author of a policy can make so many classes, and the
// chains must not fail on the id of one that no mark can have.
func (r *refusals) classFound(a netip.Addr) uint32 {
	entry := r.Planner.Compiler.Address(a).Entry
	class := entry.Class
	if entry.Prefix.IsValid() && r.Unwritten.Missing(entry.Prefix) {
		class = r.TakenFor(entry.Prefix)
	}
	if r.addresses.hasRoom(class) {
		return class
	}
	// The plan has not come to this entry yet. It will be refused, and followNode runs after that.
	return r.addresses.found(a)
}

// cramp keeps tables that have no room for new classes, which they deny: a policy that is too large affects only the endpoints it
// selects (D-22).
func (r *refusals) cramp(tables map[table.ID]error) {
	for id, why := range tables {
		r.Planner.Cramped(id, why)
		r.Retry.Failed()
	}
}
