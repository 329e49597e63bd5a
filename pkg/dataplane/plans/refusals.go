package plans

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// Unwritten are the entries of addresses that the kernel has refused to write or to remove.
type Unwritten map[netip.Prefix]Refused

// Refused is the change of one such entry, and why it was not made.
type Refused struct {
	Change classes.AddrChange
	Cause  error
}

// Changes are the changes that were not made, longest prefixes first.
func (u Unwritten) Changes() []classes.AddrChange {
	var changes []classes.AddrChange
	for _, r := range u {
		changes = append(changes, r.Change)
	}
	slices.SortFunc(changes, func(a, b classes.AddrChange) int { return b.Prefix.Bits() - a.Prefix.Bits() })
	return changes
}

// Missing reports whether the entry of an address could not be written.
func (u Unwritten) Missing(p netip.Prefix) bool {
	_, ok := u[p]
	return ok
}

// Err names the addresses, as text puts it for each; nil: there are none.
func (u Unwritten) Err(text func(netip.Prefix, error) error) error {
	const most = 16
	var errs []error
	for i, p := range slices.SortedFunc(maps.Keys(u), netip.Prefix.Compare) {
		if i == most {
			errs = append(errs, fmt.Errorf("and %d more addresses", len(u)-most))
			break
		}
		errs = append(errs, text(p, u[p].Cause))
	}
	return errors.Join(errs...)
}

// Refusals say what follows from writes that the kernel refuses, so that a refusal affects as few endpoints as possible, and when to
// try again. Not safe for concurrent use.
type Refusals struct {
	Planner   *Planner
	Unwritten Unwritten
	Retry     *Backoff
	// Believed is the class that the kernel's entry of an address has, as far as is known; not ok: it has none.
	Believed func(netip.Prefix) (class uint32, ok bool)
}

// Due reports whether it is time to try refused writes again.
func (r *Refusals) Due() bool {
	if !r.Planner.Failing && len(r.Unwritten) == 0 {
		r.Retry.Reset()
		return false
	}
	return r.Retry.Due()
}

// RetryTables has tables made again that were refused, if it is time.
func (r *Refusals) RetryTables() {
	if r.Due() && r.Planner.Failing && r.Planner.Retry() {
		r.Retry.Failed()
	}
}

// Withhold removes the tables that could not be published from the plan.
func (r *Refusals) Withhold(tables map[table.ID]error) {
	if len(tables) == 0 {
		return
	}
	r.Planner.Withhold(tables)
	r.Retry.Failed()
}

// Wider returns the endpoints whose policy would allow a missing address more than it should, because the address is judged as the prefix
// around it. Each has the reason why it is to be closed, as text puts it for the first such address.
func (r *Refusals) Wider(text func(p netip.Prefix, cause error) string) map[model.EndpointID]string {
	now, known := map[model.EndpointID]string{}, map[plan.ClassPair]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(r.Unwritten), netip.Prefix.Compare) {
		c := r.pair(p)
		if known[c] {
			continue
		}
		known[c] = true
		for _, id := range r.Planner.Compiler.Wider(c[0], c[1]) {
			if now[id] == "" {
				now[id] = text(p, r.Unwritten[p].Cause)
			}
		}
	}
	return now
}

// Misjudged returns the endpoints whose rules tell apart the class by which a refused address is judged, and the one that it is to have,
// each with these addresses.
func (r *Refusals) Misjudged() map[model.EndpointID]dataplane.Misjudged {
	if len(r.Unwritten) == 0 {
		return nil
	}
	var pairs plan.ClassPairs
	var refused []dataplane.RefusedAddr
	kinds := map[plan.ClassPair]int{}
	for _, p := range slices.SortedFunc(maps.Keys(r.Unwritten), netip.Prefix.Compare) {
		c := r.pair(p)
		kind, known := kinds[c]
		if !known {
			kind, pairs = len(pairs), append(pairs, c)
			kinds[c] = kind
		}
		refused = append(refused, dataplane.RefusedAddr{Prefix: p, Cause: r.Unwritten[p].Cause, Kind: kind})
	}
	now := map[model.EndpointID]dataplane.Misjudged{}
	for id, apart := range pairs.Apart(r.Planner.Compiler) {
		now[id] = dataplane.Misjudged{Refused: refused, Kinds: apart}
	}
	return now
}

// pair returns the class that packets find for an address whose entry could not be written or removed, and the one it is to have.
func (r *Refusals) pair(p netip.Prefix) plan.ClassPair {
	c := plan.ClassPair{r.TakenFor(p), r.Unwritten[p].Change.Class}
	if r.Unwritten[p].Change.Gone {
		c[1] = r.Planner.Compiler.Around(p, r.Unwritten.Missing)
	}
	return c
}

// TakenFor is the class that packets find for an address without an entry, or with one that could not be removed.
func (r *Refusals) TakenFor(p netip.Prefix) uint32 {
	if class, ok := r.Believed(p); ok {
		return class
	}
	return r.Planner.Compiler.Around(p, r.Unwritten.Missing)
}

// Busy are the classes that entries still have which could not be removed. The map is the caller's.
func (r *Refusals) Busy() map[uint32]bool {
	busy := map[uint32]bool{}
	for p := range r.Unwritten {
		if class, ok := r.Believed(p); ok {
			busy[class] = true
		}
	}
	return busy
}
