package plan

import (
	"net/netip"
	"reflect"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// Remainder is what is left to be written: of the last plan of a Compiler, and of the changes that wait for the next one.
type Remainder struct {
	Plan     Plan
	Moved    bool            // addresses have the classes that the plan moves them to
	Bound    bool            // endpoints have the tables that the plan binds them to, and these judge their live flows, too
	Rejudged bool            // the live flows of Plan.Rejudge are judged again
	Waiting  []model.Changes // not planned yet
}

// Endpoints returns the endpoints, shadows among them, that are not judged by their newest policy before the remainder is written: those
// that get other tables, another interface, other addresses or further sources; those whose rules tell apart the classes that an address has
// and is to have; and those whose policy, or a set that it refers to, a waiting change alters. Of a part that is written halfway all count.
//
// It works that out from what the Compiler keeps anyway, so that plans which are written cost nothing for it.
func (r Remainder) Endpoints(c *Compiler) map[model.EndpointID]bool {
	behind := map[model.EndpointID]bool{}
	if !r.Bound {
		c.back.addChanged(behind)
	}
	if !r.Moved {
		c.endpoints.addApart(c.back.allMoved(), c.classes, behind)
	}
	if !r.Rejudged {
		for _, at := range r.Plan.Rejudge {
			behind[at.Endpoint] = true
		}
	}
	for _, ch := range r.Waiting {
		c.endpoints.addWaiting(ch, c.sets, behind)
	}
	return behind
}

// ClassPair is the class by which the kernel judges an address, and the one that the address is to have.
type ClassPair [2]uint32

// ClassPairs are several, with an index each.
type ClassPairs []ClassPair

// Apart returns for the endpoints whose rules tell the classes of some pairs apart which pairs these are. Endpoints with the same
// programs share a slice. Shadows are left out.
func (pairs ClassPairs) Apart(c *Compiler) map[model.EndpointID][]bool {
	all := map[model.EndpointID][]bool{}
	known, both := map[*program][]bool{nil: nil}, map[[2]*program][]bool{}
	for id, e := range c.endpoints.list {
		if isShadow(id) {
			continue
		}
		programs := e.applied.programs
		apart, ok := both[programs]
		if !ok {
			for _, prog := range programs {
				if _, ok := known[prog]; !ok {
					known[prog] = prog.distinguishes(pairs, c.classes)
				}
			}
			apart = either(known[programs[0]], known[programs[1]])
			both[programs] = apart
		}
		if apart != nil {
			all[id] = apart
		}
	}
	return all
}

// distinguishes returns which pairs of classes the program's rules tell apart; nil: none.
func (p *program) distinguishes(pairs ClassPairs, all *classes.Classes) (apart []bool) {
	for i, c := range pairs {
		if !all.Differ(c[0], c[1], p.sets) {
			continue
		}
		if apart == nil {
			apart = make([]bool, len(pairs))
		}
		apart[i] = true
	}
	return apart
}

// either returns what is set in one of two slices, each of which may be nil for none.
func either(a, b []bool) []bool {
	if a == nil || b == nil {
		return slices.Concat(a, b)
	}
	all := slices.Clone(a)
	for i, is := range b {
		all[i] = all[i] || is
	}
	return all
}

// addApart adds the endpoints with a program to whose rules the two classes of a pair are not the same.
func (s *endpoints) addApart(pairs [][2]uint32, all *classes.Classes, to map[model.EndpointID]bool) {
	known := map[*program]bool{}
	for id, e := range s.list {
		if to[id] {
			continue
		}
		for _, prog := range e.applied.programs {
			if prog == nil || len(pairs) == 0 {
				continue
			}
			apart, ok := known[prog]
			if !ok {
				apart = slices.ContainsFunc(pairs, func(p [2]uint32) bool { return all.Differ(p[0], p[1], prog.sets) })
				known[prog] = apart
			}
			if apart {
				to[id] = true
			}
		}
	}
}

// addWaiting adds the endpoints that changes concern which no plan has yet.
func (s *endpoints) addWaiting(ch model.Changes, sets *setNumbers, to map[model.EndpointID]bool) {
	for id, policy := range ch.Endpoints {
		var planned *model.EndpointPolicy
		if e := s.list[id]; e != nil {
			planned = e.desired.policy
		}
		if planned == policy || planned != nil && policy != nil && reflect.DeepEqual(planned, policy) {
			continue
		}
		to[id] = true
		if s.shadows.concerns(id, policy) {
			to[id.Shadow()] = true
		}
	}
	for id, change := range ch.Sets {
		num, known := sets.Find(id)
		if !known || len(change.Added)+len(change.Removed) == 0 {
			continue
		}
		for ep, e := range s.list {
			if e.refersTo(num) || e.asksFor(id, change) {
				to[ep] = true
			}
		}
	}
}

// refersTo reports whether rules of the endpoint's programs, those in the kernel or those to come, refer to a set.
func (e *endpoint) refersTo(set uint32) bool {
	return slices.ContainsFunc(slices.Concat(e.applied.programs[:], e.desired.programs[:]), func(prog *program) bool {
		if prog == nil {
			return false
		}
		_, in := slices.BinarySearch(prog.sets, set)
		return in
	})
}

// asksFor reports whether the endpoint's programs were chosen by whether one of its own addresses is in a set, and that changes.
func (e *endpoint) asksFor(set model.SetID, change *model.SetChange) bool {
	if e.desired.policy == nil || !slices.ContainsFunc(e.desired.folds[:], func(f *fold) bool { return f != nil && f.asksFor(set) }) {
		return false
	}
	own := func(p netip.Prefix) bool { return slices.ContainsFunc(e.desired.policy.Addrs, p.Contains) }
	return slices.ContainsFunc(change.Added, own) || slices.ContainsFunc(change.Removed, own)
}

// asksFor reports whether programs of the policy differ by whether an endpoint's own address is in a set.
func (f *fold) asksFor(set model.SetID) bool {
	return slices.ContainsFunc(f.variants, func(v *variant) bool {
		_, asked4 := v.answers[question{4, set}]
		_, asked6 := v.answers[question{6, set}]
		return asked4 || asked6
	})
}
