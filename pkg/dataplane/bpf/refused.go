package bpf

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// What the kernel refuses to take concerns as few endpoints as possible: here is what that means for the parts together.

// retryDue reports whether to try again what was refused.
func (s *state) retryDue() bool {
	if !s.plans.failing && len(s.addresses.unwritten) == 0 {
		s.retry.reset()
		return false
	}
	return s.retry.due()
}

// retryTables has tables made again that were refused, if it is time.
func (s *state) retryTables() {
	if s.retryDue() && s.plans.failing && s.plans.retry() {
		s.retry.failed()
	}
}

// retryAddrs tries again to write addresses that were refused, if it is time.
func (s *state) retryAddrs() error {
	if len(s.addresses.unwritten) == 0 || !s.retryDue() {
		return nil
	}
	return s.writeAddrs(s.addresses.refused())
}

// writeAddrs writes changes of addresses. An entry that cannot be written concerns that address only: what there is of it
// is removed, since with its old class it might be allowed what it is to be denied, and from there on it is what a prefix
// around it is. Endpoints that this would open for it are closed.
func (s *state) writeAddrs(changes []classes.AddrChange) error {
	for group := range groups(changes) {
		for _, c := range group {
			if c.Gone {
				s.retry.room()
			}
			s.addresses.set(c, s.endpoints.interfaceOf(c.Endpoint, s.plans.plan.Bind))
		}
		if !s.addresses.write(group, s.classes) {
			continue
		}
		s.retry.failed()
		if err := s.closeWide(); err != nil {
			return err
		}
	}
	return nil
}

// closeWide closes the endpoints that would take a missing address for one that they allow more than that address, and
// opens those that need not be closed for that any more.
func (s *state) closeWide() error {
	missing := s.addresses.unwritten
	if len(missing)+len(s.endpoints.closed) == 0 {
		return nil
	}
	now, known := map[model.EndpointID]string{}, map[[2]uint32]bool{}
	for _, p := range slices.SortedFunc(maps.Keys(missing), netip.Prefix.Compare) {
		taken, is := s.takenFor(p), missing[p].change.Class
		if missing[p].change.Gone {
			is = s.plans.compiler.Around(p, s.addresses.missing)
		}
		if known[[2]uint32{taken, is}] {
			continue
		}
		known[[2]uint32{taken, is}] = true
		for _, id := range s.plans.compiler.Wider(taken, is) {
			if now[id] == "" {
				now[id] = fmt.Sprintf("closed, since it would allow %s what it denies to it: write map %s: %v", p, addrMap(p), missing[p].cause)
			}
		}
	}
	return s.endpoints.close(now)
}

// takenFor is the class that packets find for an address without an entry, or with one that could not be removed.
func (s *state) takenFor(p netip.Prefix) uint32 {
	if info, ok := s.addresses.believed(p); ok {
		return info.Class
	}
	return s.plans.compiler.Around(p, s.addresses.missing)
}

// busyClasses are those that something in the kernel refers to which could not be removed, or that packets may be at work
// with.
func (s *state) busyClasses() map[uint32]bool {
	busy := s.classes.busy()
	for p := range s.addresses.unwritten {
		if info, ok := s.addresses.believed(p); ok {
			busy[info.Class] = true
		}
	}
	for _, key := range s.classes.sets.Unwritten() {
		busy[key.Class] = true
	}
	return busy
}

// missing says what the kernel refuses to take, and what that closes. What was noted for once is forgotten.
func (s *state) missing() error {
	errs := s.rest
	s.rest = nil
	return errors.Join(append(errs, s.addresses.err())...)
}

// writeLeft writes what failed attempts have left, and what is to be repaired.
func (s *state) writeLeft() error {
	var errs []error
	for _, t := range verdictTables(s.kernel.maps) {
		if t.Pending() > 0 {
			errs = append(errs, t.Sync())
		}
	}
	return errors.Join(errs...)
}
