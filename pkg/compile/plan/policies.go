package plan

import (
	"fmt"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// policies are the policies of all endpoints and the programs they expand to. A large one is expanded in several plans.
type policies struct {
	sets     *setNumbers
	rules    *ruleNumbers
	programs *programs
	ledger   *ledger
	pace     *pace
	folds    map[*model.DirectionPolicy]*fold
	making   map[*variant]bool // those that are being expanded
}

func newPolicies(sets *setNumbers, rules *ruleNumbers, programs *programs, l *ledger, p *pace) *policies {
	return &policies{sets: sets, rules: rules, programs: programs, ledger: l, pace: p,
		folds: map[*model.DirectionPolicy]*fold{}, making: map[*variant]bool{}}
}

// use returns the fold of a policy, for one more user.
func (s *policies) use(p *model.DirectionPolicy) *fold {
	f := s.folds[p]
	if f == nil {
		f = &fold{policy: p, rules: match.EntriesOf(p), nets: localNets(p)}
		s.folds[p] = f
	}
	f.users++
	return f
}

// leave is called when a user left; f may be nil.
func (s *policies) leave(f *fold) {
	if f == nil {
		return
	}
	if f.users--; f.users == 0 {
		delete(s.folds, f.policy)
	}
}

// prepare expands a policy for an endpoint of the namespace with these addresses, as far as this plan may. False: there is
// more to do.
func (s *policies) prepare(f *fold, l *localAddrs, namespace string) (ready bool) {
	ready = s.prepareFor(f, l, namespace)
	for _, a := range l.more {
		other := *l
		other.set(a)
		ready = s.prepareFor(f, &other, namespace) && ready
	}
	return ready
}

// refusal returns why no endpoint of the namespace with these addresses can have a policy, as far as that is known.
func (s *policies) refusal(f *fold, l *localAddrs, namespace string) error {
	err := s.refusalOf(f.variant(l), namespace)
	for _, a := range l.more {
		if err != nil {
			break
		}
		other := *l
		other.set(a)
		err = s.refusalOf(f.variant(&other), namespace)
	}
	return err
}

func (s *policies) refusalOf(v *variant, namespace string) error {
	switch {
	case v.err != nil:
		return v.err
	case v.program == nil && v.cost != (Cost{}):
		return s.ledger.room(namespace, v.cost)
	}
	return nil
}

// prepareFor does so for the first address of each family.
func (s *policies) prepareFor(f *fold, l *localAddrs, namespace string) (ready bool) {
	v := f.variant(l)
	if v.program != nil || s.refusalOf(v, namespace) != nil {
		return true
	}
	if v.making == nil {
		v.making = newExpansion(f.policy, l, s.sets, s.rules)
		s.pace.work.Policies++
		s.making[v] = true
	}
	v.making.plan = s.pace.plan()
	if !v.making.done && s.pace.mayExpand(f.rules) {
		s.pace.expand(v.making, l, v.answers)
	}
	return v.making.done
}

// abandon ends the expansions that no endpoint has asked for in this plan.
func (s *policies) abandon() {
	for v := range s.making {
		if v.making == nil || v.making.plan == s.pace.plan() {
			continue
		}
		v.making.end()
		v.making = nil
	}
	for v := range s.making {
		if v.making == nil {
			delete(s.making, v)
		}
	}
}

// close gives up the expansions.
func (s *policies) close() {
	for v := range s.making {
		if v.making != nil {
			v.making.end()
			v.making = nil
		}
	}
}

// expandAll returns the program of a policy for an endpoint of the namespace with these addresses, which must be the
// same for each.
func (s *policies) expandAll(f *fold, l *localAddrs, namespace string) (*program, error) {
	prog, err := s.expand(f, l, namespace)
	for _, a := range l.more {
		if err != nil {
			break
		}
		first, other := l.addrs[indexOf(a)], *l
		other.set(a)
		var same *program
		if same, err = s.expand(f, &other, namespace); err == nil && same != prog {
			err = fmt.Errorf("%s and %s: %w", first, a, ErrOwnAddresses)
		}
	}
	if err != nil {
		return nil, err
	}
	return prog, nil
}

// expand returns the program of a policy for an endpoint with these addresses, the first of each family. It is prepared.
func (s *policies) expand(f *fold, l *localAddrs, namespace string) (*program, error) {
	v := f.variant(l)
	if v.program != nil || v.err != nil {
		return v.program, v.err
	}
	if v.cost != (Cost{}) { // the cost is known: without room for it there is nothing to do
		if err := s.ledger.room(namespace, v.cost); err != nil {
			return nil, err
		}
	}
	made, lists, err := v.making.made, v.making.lists, v.making.err
	defer func(made *expansion) { made.end() }(v.making)
	v.making = nil
	if err != nil {
		v.err = err
		return nil, err
	}
	v.cost = made.cost
	if text := s.ledger.overDirection(v.cost); text != "" {
		v.err = fmt.Errorf("%s policy: %w: %s", made.direction, match.ErrOverLimit, text)
		return nil, v.err
	}
	if v.program = s.programs.equal(made, lists); v.program != nil {
		return v.program, nil
	}
	if err := s.ledger.room(namespace, v.cost); err != nil {
		return nil, err
	}
	s.programs.add(made, lists)
	v.program = made
	return made, nil
}

// foldVariant is a variant of a policy.
type foldVariant struct {
	*fold
	*variant
}
