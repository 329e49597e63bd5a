package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/ids"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
)

// slot is a compiled policy of one direction as chains. Endpoints with the same policy share it.
type slot struct {
	number uint32
	table  *table.Table
	of     map[uint8]*chains.Slot // by IP version; only those of which an endpoint that it judges has an address
	since  time.Time              // of the policy
}

// slots are the tables that judge endpoints, and the chains that lead to them.
type slots struct {
	world    *world
	marks    chains.Marks
	options  map[uint8]*chains.Options
	dispatch map[uint8]map[model.Direction]*chains.Dispatch
	numbers  ids.Pool
	changing sync.Mutex // held while list changes: other goroutines read counts
	list     map[table.ID]*slot
	// known are the classes that addresses may have: those of the compiler, and those that it has dropped while entries still have them.
	known map[uint32]classes.Class
	all   classes.List // those of the compiler, as they were when know was last called
	// dropped are classes that chains know and no address has any more.
	dropped []uint32
}

// shapeOf is the shape of trees for a backend.
func shapeOf(b iptables.Backend) chains.Shape {
	if b == iptables.NFT {
		return chains.NFT()
	}
	return chains.Legacy()
}

func newSlots(w *world, shape chains.Shape, marks chains.Marks) *slots {
	s := &slots{world: w, marks: marks, options: map[uint8]*chains.Options{}, dispatch: map[uint8]map[model.Direction]*chains.Dispatch{},
		numbers: ids.NewPool(1, marks.Most()+1), list: map[table.ID]*slot{}, known: map[uint32]classes.Class{}}
	for _, family := range families {
		o := &chains.Options{Marks: marks, Names: w.names[family], Family: family, Shape: shape}
		s.options[family] = o
		s.dispatch[family] = map[model.Direction]*chains.Dispatch{
			model.Ingress: chains.NewDispatch(chains.IngressSlots, o), model.Egress: chains.NewDispatch(chains.EgressSlots, o)}
	}
	return s
}

// begin makes the empty trees of slots desired.
func (s *slots) begin() error {
	for family, directions := range s.dispatch {
		for _, d := range directions {
			if err := s.set(family, chains.Delta{Set: d.Chains()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// mark returns the mark in the entries of endpoints that a table judges.
func (s *slots) mark(id table.ID) (ipsets.Mark, error) {
	slot := s.list[id]
	if slot == nil {
		return ipsets.Mark{}, fmt.Errorf("table %d has no chains", id)
	}
	v, err := s.marks.Slot(slot.number)
	return ipsets.Mark{Value: v.Value, Mask: v.Mask}, err
}

// numbersOf returns the slots of a binding's tables, by model.Direction; 0: the table has no chains.
func (s *slots) numbersOf(b plan.Binding) (numbers [2]uint32) {
	for direction, id := range [2]table.ID{b.Ingress, b.Egress} {
		if at := s.list[id]; at != nil {
			numbers[direction] = at.number
		}
	}
	return numbers
}

// replace writes the chains of new tables in place of the chains of the tables that they succeed: endpoints keep their slots, so one
// transaction changes the policy of all of them. moves maps each successor to its predecessor. No address may change its class in
// the same plan. done: at least one table was replaced.
func (s *slots) replace(fresh []*table.Table, moves map[table.ID]table.ID) (done bool, err error) {
	known := s.classes()
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, t := range fresh {
		old, ok := s.list[moves[t.ID]]
		if !ok || s.list[t.ID] != nil || old.table.Direction != t.Direction {
			continue
		}
		next := &slot{number: old.number, table: t, of: map[uint8]*chains.Slot{}, since: time.Now()}
		for family := range old.of {
			if of, err := chains.NewSlot(old.number, t, known, s.options[family]); err == nil {
				next.of[family] = of
			}
		}
		if len(next.of) < len(old.of) {
			continue // build reports the error
		}
		s.world.journal.slot(old.number)
		deltas, faults := map[uint8]chains.Delta{}, error(nil)
		for family, of := range next.of {
			deltas[family] = chains.Difference(old.of[family].Chains(), of.Chains())
			faults = errors.Join(faults, of.Err())
		}
		if faults != nil {
			continue // as above
		}
		for family, delta := range deltas {
			if err := s.set(family, delta); err != nil {
				return done, err
			}
		}
		delete(s.list, moves[t.ID])
		s.list[t.ID], done = next, true
	}
	return done, nil
}

// uses reports whether any slot judges addresses of the IP version.
func (s *slots) uses(family uint8) bool {
	for at := range maps.Values(s.list) {
		if at.of[family] != nil {
			return true
		}
	}
	return false
}

// build makes the missing chains of the plan's endpoints: those of new tables, and those of tables that judge their first endpoint
// with an address of an IP version. tables are all tables of the compiler, since a table that was replaced in place may be bound
// again. refused are new tables that have no chains, with the reason.
func (s *slots) build(p plan.Plan, tables []*table.Table) (refused map[table.ID]error, err error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	refused = map[table.ID]error{}
	known := s.classes()
	s.numbers.Reuse() // no packet is left with a number that the last plan released
	fresh, all := map[table.ID]bool{}, map[table.ID]*table.Table{}
	for _, t := range p.Tables {
		fresh[t.ID], all[t.ID] = true, t // the compiler has dropped those whose endpoints leave in the same plan
	}
	for _, t := range tables {
		all[t.ID] = t
	}
	for _, b := range slices.Concat(p.Grow, p.Bind) {
		if b.Endpoint.ID.Kind == model.ShadowEndpoint {
			continue
		}
		for _, id := range []table.ID{b.Ingress, b.Egress} {
			t := all[id]
			if t == nil || refused[id] != nil {
				continue
			}
			if why := s.need(t, b.Endpoint, known); why != nil {
				refused[id] = why
			}
		}
	}
	var errs []error
	for id, why := range refused {
		if !fresh[id] {
			errs = append(errs, why)
			delete(refused, id)
			continue
		}
		errs = append(errs, s.dropOne(id))
	}
	return refused, errors.Join(errs...)
}

// need makes the chains of a table for the IP versions of which the endpoint has addresses.
func (s *slots) need(t *table.Table, e *model.EndpointPolicy, known []classes.Class) error {
	at := s.list[t.ID]
	if at == nil {
		number := s.numbers.Acquire()
		if number == 0 {
			return fmt.Errorf("marks have room for %d policies of this node's endpoints, and no more: choose a wider --iptables-mark-mask", s.marks.Most())
		}
		at = &slot{number: number, table: t, of: map[uint8]*chains.Slot{}}
		s.list[t.ID] = at
	}
	for _, family := range families {
		if !sends(e, family) {
			continue
		}
		if at.of[family] != nil {
			continue
		}
		made, err := chains.NewSlot(at.number, t, known, s.options[family])
		if err != nil {
			return err
		}
		list := made.Chains()
		if err := made.Err(); err != nil {
			return err
		}
		lead, err := s.dispatch[family][t.Direction].Add(at.number)
		if err != nil {
			return err
		}
		at.of[family] = made
		s.world.journal.slot(at.number)
		if err := errors.Join(s.set(family, chains.Delta{Set: list}), s.set(family, lead)); err != nil {
			return err
		}
	}
	return nil
}

// sends reports whether an endpoint may send packets of an IP version.
func sends(e *model.EndpointPolicy, family uint8) bool {
	return slices.ContainsFunc(e.Addrs, func(a netip.Addr) bool { return familyOf(a) == family }) ||
		slices.ContainsFunc(e.Sources, func(p netip.Prefix) bool { return familyOf(p.Addr()) == family })
}

// drop removes the chains of tables that judge no endpoint any more, with the next commit.
func (s *slots) drop(list []table.ID) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	var errs []error
	for _, id := range list {
		errs = append(errs, s.dropOne(id))
	}
	return errors.Join(errs...)
}

func (s *slots) dropOne(id table.ID) error {
	at := s.list[id]
	if at == nil {
		return nil
	}
	var errs []error
	for family, of := range at.of {
		errs = append(errs, s.set(family, s.dispatch[family][at.table.Direction].Remove(at.number)))
		var gone []string
		for _, c := range of.Chains() {
			gone = append(gone, c.Name)
		}
		errs = append(errs, s.set(family, chains.Delta{Gone: gone}))
	}
	s.world.journal.slot(at.number)
	s.numbers.Release(at.number)
	delete(s.list, id)
	return errors.Join(errs...)
}

// changed notes in the journal that chains of a slot change.
func (s *slots) changed(at *slot, d chains.Delta) {
	if len(d.Set)+len(d.Gone) > 0 {
		s.world.journal.slot(at.number)
	}
}

// set adds the chains of a delta to the desired ones and removes those that are gone.
func (s *slots) set(family uint8, d chains.Delta) error {
	to := s.world.of("mangle", family)
	for _, c := range d.Set {
		if err := to.Set(ruleset.Chain{Name: c.Name, Rules: c.Rules}); err != nil {
			return err
		}
	}
	for _, name := range d.Gone {
		to.Remove(name)
	}
	return nil
}

// counts returns the packets and bytes that each rule of policy has decided, by number of the rule. It sums the counters of rules of
// chains. A chain that is written again counts from 0.
func (s *slots) counts(ctx context.Context) (inspect.Counts, error) {
	counts := inspect.Counts{}
	for _, family := range families {
		saved, err := s.world.of("mangle", family).Read(ctx)
		if err != nil {
			return nil, err
		}
		s.addAll(counts, family, saved)
	}
	return counts, nil
}

func (s *slots) addAll(counts inspect.Counts, family uint8, saved *ruleset.Saved) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, at := range s.list {
		if of := at.of[family]; of != nil {
			add(counts, of.Chains(), saved)
		}
	}
}

// add adds the counts of chains.
func add(counts inspect.Counts, list []chains.Chain, saved *ruleset.Saved) {
	for _, c := range list {
		chain := saved.Chain(c.Name)
		if chain == nil {
			continue
		}
		for i, decides := range c.Decides {
			if decides.ID == 0 || i >= len(chain.Rules) {
				continue
			}
			count := counts[decides.ID]
			count.Packets += chain.Rules[i].Counter.Packets
			count.Bytes += chain.Rules[i].Counter.Bytes
			counts[decides.ID] = count
		}
	}
}
