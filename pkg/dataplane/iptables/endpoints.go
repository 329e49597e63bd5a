package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
)

// endpoint is one local endpoint.
type endpoint struct {
	policy *model.EndpointPolicy
	tables [2]table.ID // by model.Direction
	slots  [2]uint32   // of these tables
	since  time.Time   // of the slots
	closed string      // why it is to be closed although its policy is there; empty: it is to be open
	// refused is the kernel's error for an entry of this endpoint that it has no room for; nil: all entries are written. A refused
	// endpoint is closed, and others are not affected.
	refused error
}

// endpoints are the local endpoints and their entries in the sets. An endpoint has one entry for each of its addresses in each
// of three sets: own, egress and ingress. It is open while its addresses are in own.
//
// An entry belongs to one endpoint at a time, the latest that it was written for. So an endpoint that leaves does not remove the
// entry of a successor with the same interface and address.
type endpoints struct {
	sets    *sets
	slots   *slots
	sources *sources
	routes  *rerouted // to the further sources
	heirs   *heirs
	bound   map[model.EndpointID]*endpoint
	// holder has the endpoint that each entry belongs to; open are the entries that are in own.
	holder map[ipsets.Key]model.EndpointID
	open   map[ipsets.Key]bool
	// changes counts those of holder and open.
	changes uint64
}

// newEndpoints has none. barred returns why no further source counts; see sources.
func newEndpoints(sets *sets, slots *slots, routes *rerouted, heirs *heirs, barred func() string) *endpoints {
	return &endpoints{sets: sets, slots: slots, sources: newSources(sets, slots, barred), routes: routes, heirs: heirs, bound: map[model.EndpointID]*endpoint{},
		holder: map[ipsets.Key]model.EndpointID{}, open: map[ipsets.Key]bool{}}
}

func (e *endpoints) journal() *journal { return e.slots.world.journal }

// keys are the keys of an endpoint's entries.
func keys(p *model.EndpointPolicy) []ipsets.Key {
	if p == nil {
		return nil
	}
	list := make([]ipsets.Key, 0, len(p.Addrs))
	for _, a := range p.Addrs {
		list = append(list, ipsets.Key{Prefix: single(a), Interface: p.Iface})
	}
	return list
}

// owners returns the interfaces of endpoints by their addresses; of an address that several claim, that of the endpoint which is open.
func (e *endpoints) owners() map[netip.Addr]string {
	of := map[netip.Addr]string{}
	for _, open := range []bool{false, true} {
		for k := range e.holder {
			if e.open[k] == open {
				of[k.Prefix.Addr()] = k.Interface
			}
		}
	}
	return of
}

// addrs are the addresses of endpoints.
func (e *endpoints) addrs(list []model.EndpointID) (all []netip.Addr) {
	for _, id := range list {
		if ep := e.bound[id]; ep != nil && ep.policy != nil {
			all = append(all, ep.policy.Addrs...)
		}
	}
	return all
}

// reassigned returns the addresses that an endpoint loses, and those that it gets.
func (e *endpoints) reassigned(now *model.EndpointPolicy) (lost, got []netip.Addr) {
	if now.ID.Kind == model.ShadowEndpoint {
		return nil, nil // it has the addresses of its endpoint
	}
	var had []ipsets.Key
	if ep := e.bound[now.ID]; ep != nil {
		had = keys(ep.policy)
	}
	for _, k := range without(had, keys(now)) {
		lost = append(lost, k.Prefix.Addr())
	}
	for _, k := range without(keys(now), had) {
		got = append(got, k.Prefix.Addr())
	}
	return lost, got
}

// planned returns the further sources of all endpoints when a plan is carried out.
func (e *endpoints) planned(p plan.Plan) []further.Listed { return e.sources.planned(p, e.bound) }

// reroutes reports whether further sources are routed elsewhere since the last look, so that the next Apply has to follow.
func (e *endpoints) reroutes() bool { return e.routes.look(e.sources.all(e.bound), time.Now) }

// judged reports whether an endpoint is bound, so that packets of it may be in chains.
func (e *endpoints) judged(id model.EndpointID) bool { return e.bound[id] != nil }

// shut closes the endpoints that leave, and the addresses that endpoints lose or that move to another endpoint. It comes before
// any other change.
func (e *endpoints) shut(p plan.Plan) error {
	var going []ipsets.Key
	for _, id := range p.Unbind {
		if ep := e.bound[id]; ep != nil {
			going = append(going, keys(ep.policy)...)
		}
	}
	for _, b := range p.Bind {
		if b.Endpoint.ID.Kind == model.ShadowEndpoint {
			continue // it has the addresses of its endpoint
		}
		now := keys(b.Endpoint)
		if ep := e.bound[b.Endpoint.ID]; ep != nil {
			going = append(going, without(keys(ep.policy), now)...)
		}
		for _, k := range now {
			if holder, ok := e.holder[k]; ok && holder != b.Endpoint.ID {
				going = append(going, k)
			}
		}
	}
	return errors.Join(e.close(going), e.sources.narrow(p))
}

// without returns the keys of the first list that are not in the second.
func without(list, others []ipsets.Key) []ipsets.Key {
	return slices.DeleteFunc(slices.Clone(list), func(k ipsets.Key) bool { return slices.Contains(others, k) })
}

// close removes entries from own.
func (e *endpoints) close(list []ipsets.Key) error {
	for _, k := range list {
		if !e.open[k] {
			continue
		}
		e.journal().endpoint(e.holder[k], false)
		if err := write(e.sets.of[familyOf(k.Prefix.Addr())].own, ipsets.Change{Entry: ipsets.Entry{Key: k}, Remove: true}); err != nil {
			return err
		}
		e.journal().endpoint(e.holder[k], true)
		delete(e.open, k)
		e.changes++
	}
	return nil
}

// bind gives endpoints the slots of the tables that the plan binds them to: one write for each address and direction. Shadows get
// no slots: chains do not evaluate staged policies.
func (e *endpoints) bind(list []plan.Binding) error {
	for _, b := range list {
		if b.Endpoint.ID.Kind == model.ShadowEndpoint {
			continue
		}
		ep := e.bound[b.Endpoint.ID]
		if ep == nil {
			ep = &endpoint{}
		}
		left := without(keys(ep.policy), keys(b.Endpoint))
		e.journal().endpoint(b.Endpoint.ID, false)
		err := e.write(b)
		if err != nil && !noRoom(err) {
			return fmt.Errorf("endpoint %s: %w", b.Endpoint.ID, err)
		}
		e.bound[b.Endpoint.ID] = ep
		if slots := e.slots.numbersOf(b); ep.slots != slots {
			ep.slots, ep.since = slots, time.Now()
		}
		ep.policy, ep.tables, ep.refused = b.Endpoint, [2]table.ID{b.Ingress, b.Egress}, err
		if err := errors.Join(e.remove(b.Endpoint.ID, left), e.sources.rebind(b.Endpoint.ID, ep)); err != nil {
			return fmt.Errorf("endpoint %s: %w", b.Endpoint.ID, err)
		}
		e.journal().endpoint(b.Endpoint.ID, true)
	}
	return nil
}

// write makes the slots of an endpoint's tables judge its addresses.
func (e *endpoints) write(b plan.Binding) error {
	for _, k := range keys(b.Endpoint) {
		e.holder[k] = b.Endpoint.ID // also of what is written in part
		e.changes++
		of := e.sets.of[familyOf(k.Prefix.Addr())]
		for direction, to := range [2]*ipsets.Set{of.ingress, of.egress} {
			mark, err := e.slots.mark([2]table.ID{b.Ingress, b.Egress}[direction])
			if err != nil {
				return err
			}
			if err := write(to, ipsets.Change{Entry: ipsets.Entry{Key: k, Mark: mark}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// unbind removes the entries of endpoints that have left.
func (e *endpoints) unbind(list []model.EndpointID) error {
	for _, id := range list {
		ep := e.bound[id]
		if ep == nil {
			continue
		}
		if err := e.remove(id, keys(ep.policy)); err != nil {
			return fmt.Errorf("endpoint %s: %w", id, err)
		}
		delete(e.bound, id)
		e.journal().left(id)
	}
	return nil
}

// remove deletes entries that are still the endpoint's.
func (e *endpoints) remove(id model.EndpointID, list []ipsets.Key) error {
	for _, k := range list {
		if e.holder[k] != id {
			continue
		}
		if err := e.close([]ipsets.Key{k}); err != nil {
			return err
		}
		of := e.sets.of[familyOf(k.Prefix.Addr())]
		for _, from := range [2]*ipsets.Set{of.ingress, of.egress} {
			if err := write(from, ipsets.Change{Entry: ipsets.Entry{Key: k}, Remove: true}); err != nil {
				return err
			}
		}
		delete(e.holder, k)
		e.changes++
	}
	return nil
}

// write makes one change of a set.
func write(to *ipsets.Set, c ipsets.Change) error {
	_, err := to.Apply([]ipsets.Change{c})
	return err
}

// differs reports whether a binding may judge live flows of an endpoint otherwise than the present one. It ignores slots whose
// policy was replaced in place: their flows are judged again already.
func (e *endpoints) differs(b plan.Binding) bool {
	ep := e.bound[b.Endpoint.ID]
	if b.Endpoint.ID.Kind == model.ShadowEndpoint {
		return false
	}
	return ep == nil || ep.slots != e.slots.numbersOf(b) || !slices.Equal(keys(ep.policy), keys(b.Endpoint)) ||
		!slices.Equal(ep.policy.Sources, b.Endpoint.Sources)
}

// moves maps new tables to the table that each replaces entirely: every endpoint that the old table judges is in the list and gets
// the new one.
func (e *endpoints) moves(list []plan.Binding) map[table.ID]table.ID {
	to := map[model.EndpointID][2]table.ID{}
	for _, b := range list {
		to[b.Endpoint.ID] = [2]table.ID{b.Ingress, b.Egress}
	}
	next, split := map[table.ID]table.ID{}, map[table.ID]bool{}
	for id, ep := range e.bound {
		for direction, old := range ep.tables {
			now := old
			if tables, moves := to[id]; moves {
				now = tables[direction]
			}
			if known, ok := next[old]; ok && known != now {
				split[old] = true
			}
			next[old] = now
		}
	}
	moves := map[table.ID]table.ID{}
	for old, now := range next {
		if old != now && !split[old] {
			moves[now] = old
		}
	}
	return moves
}
