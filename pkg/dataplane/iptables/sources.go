package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// mostListed is the limit of a set of further sources. Validation lets a pod list 16; while a list changes, none is there twice.
const mostListed = 16

// sources are the prefixes from which endpoints may send beside their own addresses. Each endpoint that lists some has two sets for
// each IP version, and rules in chains (chains.Further). An entry opens. So a prefix that cannot be written is left out, and one
// that cannot be removed is an error, which stops the plan.
//
// Sets are made before the chains that refer to them, filled after, and destroyed when no chain refers to them. An endpoint that is
// closed has no entries.
type sources struct {
	sets    *sets
	slots   *slots
	of      map[model.EndpointID]*lister
	retired []*lister // of endpoints that list nothing any more
	changes uint64    // counts those of the prefixes of all endpoints
	// barred returns why no further source counts: it is not known of each address whether it is owned. Empty: they count.
	barred func() string
}

// lister is one endpoint with further sources.
type lister struct {
	number  int
	iface   string
	listed  []netip.Prefix
	sets    map[uint8]*listSets
	refused error // why not all prefixes are in the sets
	unused  bool  // of a retired one: no chain refers to its sets
}

// listSets are the sets of one IP version: prefix -> slot of the egress, and of the ingress policy.
type listSets struct{ egress, ingress *ipsets.Set }

func (l *listSets) all() []*ipsets.Set { return []*ipsets.Set{l.egress, l.ingress} }

func newSources(sets *sets, slots *slots, barred func() string) *sources {
	return &sources{sets: sets, slots: slots, of: map[model.EndpointID]*lister{}, barred: barred}
}

// narrow removes the prefixes that endpoints do not list any more. It comes before addresses lose the mark that they are owned. Only
// the prefixes that are left count until prepare has noted the present ones, also if a step between fails.
func (s *sources) narrow(p plan.Plan) error {
	for _, id := range p.Unbind {
		if err := s.narrowTo(id, nil); err != nil {
			return err
		}
	}
	for _, b := range p.Bind {
		l := s.of[b.Endpoint.ID]
		if l == nil {
			continue
		}
		kept := b.Endpoint.Sources
		if l.iface != b.Endpoint.Iface {
			kept = nil
		}
		if err := s.narrowTo(b.Endpoint.ID, kept); err != nil {
			return err
		}
	}
	return nil
}

// narrowTo removes the prefixes of an endpoint that are not in the list.
func (s *sources) narrowTo(id model.EndpointID, kept []netip.Prefix) error {
	l := s.of[id]
	if l == nil {
		return nil
	}
	l.listed = slices.DeleteFunc(slices.Clone(l.listed), func(p netip.Prefix) bool { return !slices.Contains(kept, p) })
	s.changes++
	return s.keepOnly(id, kept)
}

// prepare makes the empty sets of endpoints that begin to list prefixes of an IP version.
func (s *sources) prepare(list []plan.Binding) {
	for _, b := range list {
		id := b.Endpoint.ID
		if id.Kind == model.ShadowEndpoint {
			continue
		}
		l := s.of[id]
		if l != nil && l.iface != b.Endpoint.Iface {
			s.retire(id)
			l = nil
		}
		if l == nil && len(b.Endpoint.Sources) == 0 {
			continue
		}
		if l == nil {
			l = &lister{number: s.free(), iface: b.Endpoint.Iface, sets: map[uint8]*listSets{}}
			s.of[id] = l
		}
		l.listed, l.refused = b.Endpoint.Sources, nil
		s.changes++
		for _, p := range l.listed {
			if family := familyOf(p.Addr()); l.sets[family] == nil {
				l.refused = errors.Join(l.refused, s.makeSets(l, family))
			}
		}
	}
}

// free returns the lowest number that no lister has.
func (s *sources) free() int {
	used := map[int]bool{}
	for _, l := range slices.Concat(slices.Collect(maps.Values(s.of)), s.retired) {
		used[l.number] = true
	}
	n := 1
	for used[n] {
		n++
	}
	return n
}

// makeSets makes the sets of one IP version.
func (s *sources) makeSets(l *lister, family uint8) error {
	names := s.slots.world.names[family].Source(family, l.number, l.iface)
	one := func(name string) *ipsets.Set { return ipsets.NewSet(s.sets.kernel, sourceSpec(name, family)) }
	made := &listSets{egress: one(names.Egress), ingress: one(names.Ingress)}
	err := errors.Join(made.egress.Ensure(), made.ingress.Ensure())
	if err != nil {
		return errors.Join(err, s.destroy(made))
	}
	l.sets[family] = made
	s.sets.list(made.all()...)
	return nil
}

// sourceSpec describes a set of further sources.
func sourceSpec(name string, family uint8) ipsets.Spec {
	number := ipsets.IPv4
	if family == 6 {
		number = ipsets.IPv6
	}
	return ipsets.Spec{Name: name, Type: ipsets.Net, Family: number, MaxEntries: 2 * mostListed, HashSize: 64}
}

// retireUnlisted retires endpoints that list nothing, or that have left.
func (s *sources) retireUnlisted(bound map[model.EndpointID]*endpoint) {
	for id, l := range s.of {
		if bound[id] == nil || len(l.listed) == 0 {
			s.retire(id)
		}
	}
}

func (s *sources) retire(id model.EndpointID) {
	s.retired = append(s.retired, s.of[id])
	delete(s.of, id)
	s.changes++
}

// all returns the prefixes of all endpoints that are bound, with their interfaces, in the order of further.Sorted.
func (s *sources) all(bound map[model.EndpointID]*endpoint) []further.Listed {
	return s.planned(plan.Plan{}, bound)
}

// planned returns what all returns when a plan is carried out.
func (s *sources) planned(p plan.Plan, bound map[model.EndpointID]*endpoint) (list []further.Listed) {
	add := func(iface string, prefixes []netip.Prefix) {
		for _, p := range prefixes {
			list = append(list, further.Listed{Prefix: p, Interface: iface})
		}
	}
	changed := map[model.EndpointID]bool{}
	for _, b := range p.Bind {
		changed[b.Endpoint.ID] = true
		if b.Endpoint.ID.Kind != model.ShadowEndpoint {
			add(b.Endpoint.Iface, b.Endpoint.Sources)
		}
	}
	for _, id := range p.Unbind {
		changed[id] = true
	}
	for id, l := range s.of {
		if bound[id] != nil && !changed[id] {
			add(l.iface, l.listed)
		}
	}
	return further.Sorted(list)
}

// ends returns the endpoints that are bound with their further sources. Others leave.
func (s *sources) ends(bound map[model.EndpointID]*endpoint) (list []shares.Endpoint) {
	for id, l := range s.of {
		if bound[id] != nil {
			list = append(list, shares.Endpoint{ID: id, Iface: l.iface, Sources: l.listed})
		}
	}
	return list
}

// chains returns what the chains of an IP version need of each endpoint, in a fixed order.
func (s *sources) chains(family uint8) (list []chains.Source) {
	for _, id := range slices.SortedFunc(maps.Keys(s.of), model.EndpointID.Compare) {
		if l := s.of[id]; l.sets[family] != nil {
			list = append(list, s.slots.world.names[family].Source(family, l.number, l.iface))
		}
	}
	return list
}

// written notes that the chains in the kernel do not refer to the sets of retired endpoints.
func (s *sources) written() {
	for _, l := range s.retired {
		l.unused = true
	}
}

// clean destroys the sets of retired endpoints. Those that the kernel still holds are tried again.
func (s *sources) clean() error {
	var left []*lister
	var errs []error
	for _, l := range s.retired {
		for family, of := range l.sets {
			if !l.unused {
				break
			}
			switch err := s.destroy(of); {
			case errors.Is(err, ipsets.ErrInUse): // nftables releases sets some time after the transaction
			case err != nil:
				errs = append(errs, err)
			default:
				delete(l.sets, family)
				s.sets.unlist(of.all()...)
			}
		}
		if len(l.sets) > 0 || !l.unused {
			left = append(left, l)
		}
	}
	s.retired = left
	return errors.Join(errs...)
}

// unusedLeft reports whether clean has sets to destroy.
func (s *sources) unusedLeft() bool {
	return slices.ContainsFunc(s.retired, func(l *lister) bool { return l.unused })
}

func (s *sources) destroy(of *listSets) error {
	var errs []error
	for _, set := range of.all() {
		if err := s.sets.kernel.Destroy(set.Spec().Name); err != nil && !errors.Is(err, ipsets.ErrNoSet) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// notInForce says which further sources of an endpoint do not count, and why; empty: all count, or there are none.
func (s *sources) notInForce(id model.EndpointID) string {
	l := s.of[id]
	if l == nil || len(l.listed) == 0 {
		return ""
	}
	if why := s.barred(); why != "" {
		return why
	}
	if l.refused != nil {
		return fmt.Sprintf("packets from some further sources are dropped, since their IP sets cannot be written: %v", l.refused)
	}
	return ""
}
