package plan

import (
	"slices"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// An endpoint whose policy cannot come into force keeps the program before, whose sets change further. If one of these comes to lack something
// that is past a limit, rules have to refer to the set of that, or they would allow what they denied: the program before does not.

// pastSets are the sets of what others lack that are defined now.
type pastSets struct {
	of    map[string][]model.SetID // by the definition of both
	known map[*program]bool        // what outlives has returned since they changed
}

// note takes in that a set is defined, or not any more.
func (p *pastSets) note(id model.SetID, defined bool) {
	if !id.IsPast() {
		return
	}
	d := id.Definition()
	at := slices.Index(p.of[d], id)
	if defined == (at >= 0) {
		return // only its members have changed
	}
	p.known = nil
	if !defined {
		if p.of[d] = slices.Delete(p.of[d], at, at+1); len(p.of[d]) == 0 {
			delete(p.of, d)
		}
		return
	}
	if p.of == nil {
		p.of = map[string][]model.SetID{}
	}
	p.of[d] = append(p.of[d], id)
}

// outlives reports whether a program judges right by its own rules what its sets lack by now, though another policy is to take its place.
func (s *assignment) outlives(prog *program) bool {
	past := &s.sets.past
	if len(past.of) == 0 { // nearly always
		return true
	}
	if known, ok := past.known[prog]; ok {
		return known
	}
	known := s.refersToPast(prog)
	if past.known == nil {
		past.known = map[*program]bool{}
	}
	past.known[prog] = known
	return known
}

// refersToPast reports whether a program refers to the sets of all that is lacking where it denies.
func (s *assignment) refersToPast(prog *program) bool {
	for _, num := range match.DenyingSets(prog.Rules) {
		for _, id := range s.sets.past.of[s.sets.Key(num).Definition()] {
			past, ok := s.sets.Find(id)
			if _, refers := slices.BinarySearch(prog.sets, past); !ok || !refers {
				return false
			}
		}
	}
	return true
}

// forget is for a program that is gone.
func (p *pastSets) forget(prog *program) { delete(p.known, prog) }

// keptOpen are the endpoints whose programs of earlier policies allow what their sets lack by now: they are to be looked at.
func (s *assignment) keptOpen() (ids []model.EndpointID) {
	if len(s.sets.past.of) == 0 {
		return nil
	}
	for at := range s.failures.kept {
		if e := s.endpoints.get(at.Endpoint); e != nil {
			if prog := e.desired.programs[at.Direction]; prog != nil && !s.outlives(prog) {
				ids = append(ids, e.id)
			}
		}
	}
	return ids
}
