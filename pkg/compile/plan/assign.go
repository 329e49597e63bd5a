package plan

import (
	"errors"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// assignment decides the desired programs of endpoints, and charges their namespaces for them.
type assignment struct {
	endpoints *endpoints
	sets      *setNumbers
	policies  *policies
	ledger    *ledger
	failures  *failures
	part      map[model.EndpointID]bool // their policies are being expanded: they are assigned again in the next plan
	waiting   map[model.EndpointID]bool // their desired programs are not in the kernel yet
}

func newAssignment(e *endpoints, sets *setNumbers, policies *policies, l *ledger, f *failures) *assignment {
	return &assignment{endpoints: e, sets: sets, policies: policies, ledger: l, failures: f,
		part: map[model.EndpointID]bool{}, waiting: map[model.EndpointID]bool{}}
}

// assignStale assigns the desired programs of all stale endpoints and returns these endpoints by id. It first releases the
// charges of all of them, so that none is refused for a program that another one is about to leave. Endpoints that are
// enforced come first; endpoints that were refused before come last.
func (s *assignment) assignStale() []*endpoint {
	all := s.endpoints.drainStale(s.part, s.failures.allRefused())
	clear(s.part)
	for _, e := range all {
		s.release(e)
	}
	turns := slices.Clone(all)
	slices.SortStableFunc(turns, func(a, b *endpoint) int { return s.turn(a) - s.turn(b) })
	for _, e := range turns {
		s.assign(e)
	}
	s.policies.abandon()
	return all
}

// release returns the charges of an endpoint's desired programs to its namespace.
func (s *assignment) release(e *endpoint) {
	for _, prog := range e.desired.programs {
		if prog != nil {
			s.ledger.release(accountOf(e.id), prog)
		}
	}
}

// turn is the rank of an endpoint where there may not be room for all: the lowest is assigned first.
func (s *assignment) turn(e *endpoint) int {
	switch {
	case isShadow(e.id):
		return 3
	case s.failures.wasRefused(e.id):
		return 2
	case e.applied.policy == nil:
		return 1
	}
	return 0
}

// assign sets the desired programs of an endpoint, or keeps them while its policies are still being expanded. An endpoint
// has both directions or none.
func (s *assignment) assign(e *endpoint) {
	var want [2]*program
	l := s.sets.localOf(e.desired.policy)
	refused := s.refusals(e, l)
	hopeless := s.hopeless(e, refused)
	if hopeless < 0 && !s.prepare(e, l, refused) { // it keeps its desired programs until then
		s.part[e.id] = true
		for _, prog := range e.desired.programs {
			if prog != nil {
				s.ledger.charge(accountOf(e.id), prog)
			}
		}
		return
	}
	s.failures.forget(e.id)
	for d := range want {
		if e.desired.policy != nil && (hopeless < 0 || d == hopeless) {
			want[d] = s.desiredProgram(e, d, l, refused[d])
		}
	}
	if want[0] == nil || want[1] == nil {
		for _, prog := range want {
			if prog != nil {
				s.ledger.release(accountOf(e.id), prog)
			}
		}
		want = [2]*program{}
	}
	for d, prog := range want {
		if prog != nil {
			prog.desired++
		}
		if old := e.desired.programs[d]; old != nil {
			old.desired--
		}
		e.desired.programs[d] = prog
	}
}

// desiredProgram returns the desired program of one direction of an endpoint, and charges its namespace. If the policy is refused, which err
// says, cannot be compiled or is over a limit, it is the applied program, or nil: also if that one would allow what its sets lack by now. A shadow never
// keeps its applied program: an outdated staged verdict is of no use to the author of the staged policy.
func (s *assignment) desiredProgram(e *endpoint, d int, l *localAddrs, err error) *program {
	at, prog := EndpointDirection{e.id, model.Direction(d)}, (*program)(nil)
	if err == nil {
		prog, err = s.policies.expandAll(e.desired.folds[d], l, accountOf(e.id))
	}
	if err == nil {
		err = s.ledger.admit(accountOf(e.id), prog)
	}
	if err == nil {
		prog.crowds = false
		if prog.limited {
			s.failures.note(at, outgrown(prog))
		}
		return prog
	}
	s.failures.note(at, err)
	old := s.kept(e, d, err)
	if old != nil {
		s.ledger.charge(accountOf(e.id), old)
		s.failures.keep(at)
	}
	return old
}

// kept returns the applied program of an endpoint-direction that cannot have its policy, if it may stay; otherwise nil.
func (s *assignment) kept(e *endpoint, d int, err error) *program {
	old := e.applied.programs[d]
	if old == nil || isShadow(e.id) || errors.Is(err, ErrOwnAddresses) || !e.sameAddrs() || !s.outlives(old) || old.crowds {
		return nil
	}
	return old
}

// refusals returns why an endpoint cannot have its policy in each direction, as far as that is known before the policy is expanded. The answer
// holds until the endpoint is assigned: what other endpoints take from now on, admit sees.
func (s *assignment) refusals(e *endpoint, l *localAddrs) (why [2]error) {
	if e.desired.policy == nil {
		return why
	}
	for d, f := range e.desired.folds {
		if why[d] = s.failures.bars(EndpointDirection{e.id, model.Direction(d)}); why[d] == nil {
			why[d] = s.policies.refusal(f, l, accountOf(e.id))
		}
	}
	return why
}

// hopeless returns a direction of which it is known that the endpoint can have no program; negative: neither. Then nothing is done for the
// other one: two endpoints whose policies take several plans would have each other's made again and again.
func (s *assignment) hopeless(e *endpoint, refused [2]error) int {
	for d, err := range refused {
		if err != nil && s.kept(e, d, err) == nil {
			return d
		}
	}
	return -1
}

// prepare expands the policies of an endpoint, as far as this plan's time allows. False: there is more to do.
func (s *assignment) prepare(e *endpoint, l *localAddrs, refused [2]error) (ready bool) {
	if e.desired.policy == nil {
		return true
	}
	ready = true
	for d, f := range e.desired.folds {
		if refused[d] == nil {
			ready = s.policies.prepare(f, l, accountOf(e.id)) && ready
		}
	}
	return ready
}

// refuse rejects programs, which have reasons: the endpoints that desired them keep their applied programs. It returns these endpoints, by id, and
// the variants that had the programs.
func (s *assignment) refuse(reasons map[*program]error) (of []*endpoint, had []foldVariant) {
	all, seen := s.endpoints.sorted(), map[*fold]bool{nil: true}
	for _, e := range all {
		for _, f := range e.desired.folds {
			if seen[f] {
				continue
			}
			seen[f] = true
			for _, v := range f.variants {
				if err := reasons[v.program]; v.program != nil && err != nil {
					v.program, v.err = nil, err
					had = append(had, foldVariant{f, v})
				}
			}
		}
	}
	refused := func(prog *program) bool { return reasons[prog] != nil }
	for _, e := range all {
		if slices.ContainsFunc(e.desired.programs[:], refused) {
			s.release(e)
			s.assign(e)
			of = append(of, e)
		}
		if slices.ContainsFunc(e.desired.programs[:], refused) {
			// Its policy is another by now, which is being expanded, and may come to be an equal program. That has to be made from its start.
			s.drop(e)
			s.part[e.id] = true
		}
	}
	return of, had
}

// leaveLacking is for the first plan: endpoints that would keep a table of an earlier agent, for want of one of their own, are closed if it
// asks for a lacking set. The next plan moves addresses of unknown classes to classes without that set, and what the table denies them now
// it might allow then.
func (s *assignment) leaveLacking(all []*endpoint) {
	for _, e := range all {
		if slices.ContainsFunc(e.desired.programs[:], s.isLacking) {
			s.drop(e)
		}
	}
}

func (s *assignment) isLacking(prog *program) bool {
	return prog != nil && s.sets.uses.someLacking(prog.sets)
}

// drop takes the desired programs of an endpoint away.
func (s *assignment) drop(e *endpoint) {
	for _, prog := range e.desired.programs {
		if prog != nil {
			prog.desired--
			s.ledger.release(accountOf(e.id), prog)
		}
	}
	e.desired.programs = [2]*program{}
}

// limitReached records for the endpoints of a program that its table has reached a limit, and lacks newer entries.
func (s *assignment) limitReached(prog *program) {
	for _, e := range s.endpoints.sorted() {
		for d := range e.desired.programs {
			if e.desired.programs[d] == prog {
				s.failures.note(EndpointDirection{e.id, model.Direction(d)}, outgrown(prog))
			}
		}
	}
}

// wait finds, among the stale endpoints and those that waited before, the ones whose desired program has no table yet. unmoved: addresses of
// unknown classes stay for this plan as an earlier agent has left them. A table of that agent judges them by sets that may have changed since, so
// endpoints that it did not judge wait for the next plan. wait returns all stale and waiting endpoints by id, and whether some wait for that.
func (s *assignment) wait(stale []*endpoint, unmoved bool) (all []*endpoint, some bool) {
	for id := range s.waiting {
		if !slices.ContainsFunc(stale, func(e *endpoint) bool { return e.id == id }) {
			stale = append(stale, s.endpoints.get(id))
		}
	}
	clear(s.waiting)
	slices.SortFunc(stale, func(a, b *endpoint) int { return a.id.Compare(b.id) })
	for _, e := range stale {
		early := unmoved && e.comesToForeign()
		some = some || early
		if !early && !s.part[e.id] && (e.desired.programs[0] == nil || !e.desired.programs[0].isPending() && !e.desired.programs[1].isPending()) {
			continue
		}
		s.waiting[e.id] = true
		for _, prog := range e.applied.programs {
			if prog != nil {
				prog.awaited = true
			}
		}
	}
	return stale, some
}

// comesToForeign reports whether a table that was found in the kernel is to judge the endpoint, and did not judge it before.
func (e *endpoint) comesToForeign() bool {
	for d, prog := range e.desired.programs {
		if prog != nil && prog.foreign && e.applied.programs[d] != prog {
			return true
		}
	}
	return false
}

// allWaiting returns the endpoints for which isWaiting is true.
func (s *assignment) allWaiting() map[model.EndpointID]bool { return maps.Clone(s.waiting) }

// isWaiting reports whether the endpoint's desired programs are not in the kernel yet.
func (s *assignment) isWaiting(e *endpoint) bool { return s.waiting[e.id] }

// partial reports whether policies are being expanded.
func (s *assignment) partial() bool { return len(s.part) > 0 }
