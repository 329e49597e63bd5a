package iptables

import (
	"fmt"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
)

// know adds all classes to those in chains made from now on, until forgetClasses. Existing chains get them by learn.
func (s *slots) know(all classes.List) {
	for c := range all.Since(s.all) {
		s.known[c.ID] = c
	}
	s.all = all
}

// classes returns the known classes that marks have room for, by number.
func (s *slots) classes() []classes.Class {
	list := make([]classes.Class, 0, len(s.known))
	for _, id := range slices.Sorted(maps.Keys(s.known)) {
		list = append(list, s.known[id])
	}
	return s.fitting(list)
}

// fitting returns the classes that marks have room for. Addresses of the others are refused one by one when they are written, so
// that too many classes of one tenant do not delay changes of others.
func (s *slots) fitting(list []classes.Class) []classes.Class {
	return slices.DeleteFunc(slices.Clone(list), func(c classes.Class) bool {
		_, err := s.marks.Class(c.ID)
		return err != nil
	})
}

// learn has all tables know new classes. It does not depend on the plan's rows, which leave out a class whose row the table still has
// from one that had its number: chains forget classes. cramped are tables that have no room for one of the classes, with the
// reason: they deny it.
func (s *slots) learn(list []classes.Class) (cramped map[table.ID]error, err error) {
	list = s.fitting(list)
	s.changing.Lock()
	defer s.changing.Unlock()
	cramped = map[table.ID]error{}
	for id, at := range s.list {
		for family, of := range at.of {
			for _, c := range list {
				delta, why := of.Set(c)
				s.changed(at, delta)
				if err := s.set(family, delta); err != nil {
					return cramped, err
				}
				if why == nil {
					why = of.Err()
				}
				if why != nil {
					cramped[id] = fmt.Errorf("class %d: %w", c.ID, why)
				}
			}
		}
	}
	return cramped, nil
}

// dropClasses notes classes that no address has any more, for forgetClasses.
func (s *slots) dropClasses(list []uint32) { s.dropped = append(s.dropped, list...) }

// forgetClasses removes the dropped classes from the chains of all tables, with the next commit.
func (s *slots) forgetClasses() error {
	list := s.dropped
	if len(list) == 0 {
		return nil
	}
	s.dropped = nil
	s.changing.Lock()
	defer s.changing.Unlock()
	for _, class := range list {
		delete(s.known, class)
	}
	for _, at := range s.list {
		for family, of := range at.of {
			for _, class := range list {
				delta := of.Forget(class)
				s.changed(at, delta)
				if err := s.set(family, delta); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
