package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
)

// keepOnly removes the entries of an endpoint that are not in the list.
func (s *sources) keepOnly(id model.EndpointID, kept []netip.Prefix) error {
	l := s.of[id]
	if l == nil {
		return nil
	}
	for _, of := range l.sets {
		for _, set := range of.all() {
			var gone []ipsets.Change // the set must not change while it is read
			for e := range set.All() {
				if !slices.Contains(kept, e.Prefix) {
					gone = append(gone, ipsets.Change{Entry: ipsets.Entry{Key: e.Key}, Remove: true})
				}
			}
			if len(gone) == 0 {
				continue
			}
			_, err := set.Apply(gone)
			if err != nil {
				return fmt.Errorf("remove further sources of endpoint %s: %w", id, err)
			}
		}
	}
	return nil
}

// write makes the entries of an endpoint those that it lists, with the slots that judge its packets; open false: none.
func (s *sources) write(id model.EndpointID, ep *endpoint, open bool) error {
	l := s.of[id]
	if l == nil {
		return nil
	}
	if !open || s.barred() != "" {
		return s.keepOnly(id, nil)
	}
	if err := s.keepOnly(id, l.listed); err != nil {
		return err
	}
	var marks [2]ipsets.Mark
	for d := range marks {
		var err error
		if marks[d], err = s.slots.mark(ep.tables[d]); err != nil {
			return errors.Join(err, s.keepOnly(id, nil))
		}
	}
	var refused error
	for _, p := range l.listed {
		of := l.sets[familyOf(p.Addr())]
		if of == nil {
			continue // prepare has noted why
		}
		for d, set := range [2]*ipsets.Set{of.ingress, of.egress} {
			e := ipsets.Entry{Key: ipsets.Key{Prefix: p}, Mark: marks[d]}
			if was, ok := set.Get(e.Key); ok && was == e {
				continue
			}
			err := write(set, ipsets.Change{Entry: e})
			if err != nil { // the entry may have the slot of a former policy
				if gone := write(set, ipsets.Change{Entry: ipsets.Entry{Key: e.Key}, Remove: true}); gone != nil {
					return errors.Join(err, gone)
				}
				refused = err
			}
		}
	}
	if refused != nil || s.complete(l) {
		l.refused = refused
	}
	return nil
}

// complete reports whether an endpoint has the sets for all prefixes that it lists.
func (s *sources) complete(l *lister) bool {
	return !slices.ContainsFunc(l.listed, func(p netip.Prefix) bool { return l.sets[familyOf(p.Addr())] == nil })
}

// rebind gives the entries that an endpoint has the slots of its present policy.
func (s *sources) rebind(id model.EndpointID, ep *endpoint) error {
	l := s.of[id]
	if l == nil {
		return nil
	}
	for _, of := range l.sets {
		if !isEmpty(of.egress) || !isEmpty(of.ingress) {
			return s.write(id, ep, true)
		}
	}
	return nil
}

func isEmpty(set *ipsets.Set) bool {
	for range set.All() {
		return false
	}
	return true
}
