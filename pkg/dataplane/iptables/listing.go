package iptables

import (
	"context"
	"errors"
	"slices"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/iptables"
)

// listing is what the chains have of endpoints with further sources. Without such endpoints they have no rule about them.
type listing struct {
	of map[uint8][]chains.Source // by IP version
	// noReversePath: the kernel has refused chains with the match rpfilter.
	noReversePath bool
	proven        bool                         // it has accepted them
	version       map[uint8]uint64             // changes with of
	made          map[uint8]map[chainName]bool // the chains that are desired
	// lone: connections of the IP version may have the mark of those that were begun by packets judged alone.
	lone map[uint8]bool
}

type chainName struct{ table, chain string }

// newListing begins without such endpoints; found are the worlds in force.
func newListing(found []*inForce) listing {
	l := listing{of: map[uint8][]chains.Source{}, version: map[uint8]uint64{}, made: map[uint8]map[chainName]bool{}, lone: map[uint8]bool{}}
	for _, f := range found {
		for family := range f.names {
			l.lone[family] = true // a killed agent may have removed the chains that know them, and not the connections
		}
	}
	return l
}

// desire replaces the endpoints of one IP version, and reports whether they are others than before.
func (l *listing) desire(family uint8, now []chains.Source) (changed bool) {
	if slices.Equal(now, l.of[family]) {
		return false
	}
	l.of[family] = now
	l.version[family]++
	return true
}

// replace notes the chains of one IP version that are desired from now on, and returns those that were and are not any more.
func (l *listing) replace(family uint8, made map[chainName]bool) (gone []chainName) {
	for name := range l.made[family] {
		if !made[name] {
			gone = append(gone, name)
		}
	}
	l.made[family] = made
	l.lone[family] = l.lone[family] || len(l.of[family]) > 0
	return gone
}

// untried reports whether the desired chains have the match rpfilter, and the kernel has never accepted such chains.
func (l *listing) untried() bool {
	return len(l.of[4])+len(l.of[6]) > 0 && !l.proven && !l.noReversePath
}

// tried notes that the kernel has accepted the desired chains.
func (l *listing) tried() {
	l.proven = l.proven || len(l.of[4])+len(l.of[6]) > 0 && !l.noReversePath
}

// rewrite makes the chains of both IP versions desired again.
func (s *static) rewrite() error {
	var errs []error
	for _, family := range families {
		errs = append(errs, s.write(family))
	}
	return errors.Join(errs...)
}

// relist makes chains desired that know the present endpoints with further sources, with the next commit.
func (s *static) relist(present func(family uint8) []chains.Source) error {
	var errs []error
	for _, family := range families {
		if s.listing.desire(family, present(family)) {
			errs = append(errs, s.write(family))
		}
	}
	return errors.Join(errs...)
}

// commit writes the chains of this world as they are desired, in one transaction for each table. If the kernel refuses those with
// the match rpfilter, it writes them without.
func (s *static) commit(ctx context.Context) error {
	err := s.world.commit(ctx)
	refused, ok := errors.AsType[*iptables.RefusedError](err)
	switch {
	case err == nil:
		s.listing.tried()
		return nil
	case !ok || !s.listing.untried():
		return err
	}
	s.listing.noReversePath = true
	if again := errors.Join(s.rewrite(), s.world.commit(ctx)); again == nil {
		return nil
	}
	s.listing.noReversePath = false // it was something else
	return errors.Join(refused, s.rewrite())
}

// forgetLone removes the connections that packets judged alone have begun, if no endpoint lists further sources any more: without the
// chains that know them, they would say who has opened a flow.
func (s *static) forgetLone() error {
	var errs []error
	for _, family := range families {
		if !s.listing.lone[family] || len(s.listing.of[family]) > 0 {
			continue
		}
		mark, of := s.base.Marks.Lone(), map[uint8]conntrack.Family{4: conntrack.IPv4, 6: conntrack.IPv6}[family]
		_, err := s.flows.DeleteMarked(of, conntrack.Filter{Mark: mark.Value, Mask: mark.Mask})
		errs = append(errs, err)
		s.listing.lone[family] = err != nil
	}
	return errors.Join(errs...)
}
