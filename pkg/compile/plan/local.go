package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// ErrOwnAddresses says that an endpoint has several addresses of one family, and that its policy means something else
// for one than for another. It has one table for all of them, so that cannot be enforced.
var ErrOwnAddresses = errors.New("its own addresses are judged differently")

// localAddrs answers for an endpoint's own addresses and notes what it was asked.
type localAddrs struct {
	c     *Compiler
	addrs [2]netip.Addr // IPv4, IPv6; invalid: none
	sets  [2][]uint32   // the numbers of the sets they are in
	more  []netip.Addr  // the endpoint's other addresses
	asked map[question]bool
}

// question is whether the endpoint's own address of a family is in a set.
type question struct {
	family uint8
	set    model.SetID
}

// localOf returns the answers for the first address of each family of an endpoint; nil has none.
func (c *Compiler) localOf(e *model.EndpointPolicy) *localAddrs {
	l := &localAddrs{c: c}
	if e == nil {
		return l
	}
	for _, a := range e.Addrs {
		if !a.IsValid() {
			continue
		}
		if t := indexOf(a); !l.addrs[t].IsValid() {
			l.set(a)
		} else {
			l.more = append(l.more, a)
		}
	}
	return l
}

func (l *localAddrs) set(a netip.Addr) {
	t := indexOf(a)
	l.addrs[t], l.sets[t] = a, l.c.classes.Members(a)
}

// indexOf is the place of an address in what is kept by family, and index that of the family.
func indexOf(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func index(family uint8) int {
	if family == 4 {
		return 0
	}
	return 1
}

// Addr implements Local.
func (l *localAddrs) Addr(family uint8) (netip.Addr, bool) {
	a := l.addrs[index(family)]
	return a, a.IsValid()
}

// In implements Local.
func (l *localAddrs) In(family uint8, set model.SetID) bool {
	in := l.in(question{family, set})
	l.asked[question{family, set}] = in
	return in
}

func (l *localAddrs) in(q question) bool {
	num, ok := l.c.sets.Find(q.set)
	if !ok {
		return false
	}
	_, in := slices.BinarySearch(l.sets[index(q.family)], num)
	return in
}

// fold is the policy of one direction and what has become of it for endpoints whose own addresses it can tell apart.
type fold struct {
	policy   *model.DirectionPolicy
	users    int
	nets     []netip.Prefix // its rules compare the endpoint's own address with these
	variants []*variant
}

// variant is a fold for endpoints with the same answers. Without program and err, there was no room for the program.
type variant struct {
	has     [2]bool // IPv4, IPv6
	inside  []bool  // by index in fold.nets
	answers map[question]bool
	making  *expansion // nil: none has begun, or it has been used
	program *program
	cost    Cost
	err     error
}

// fold returns the fold of a policy, for one more user.
func (c *Compiler) fold(p *model.DirectionPolicy) *fold {
	f := c.folds[p]
	if f == nil {
		f = &fold{policy: p, nets: localNets(p)}
		c.folds[p] = f
	}
	f.users++
	return f
}

// unfold is called when a user left; f may be nil.
func (c *Compiler) unfold(f *fold) {
	if f == nil {
		return
	}
	if f.users--; f.users == 0 {
		delete(c.folds, f.policy)
	}
}

// localNets returns the prefixes that rules compare the endpoint's own address with.
func localNets(p *model.DirectionPolicy) []netip.Prefix {
	var all []netip.Prefix
	add := func(policies []*model.PolicyRules) {
		for _, policy := range policies {
			for i := range policy.Rules {
				side := &policy.Rules[i].Destination
				if p.Direction == model.Egress {
					side = &policy.Rules[i].Source
				}
				all = append(append(all, side.Nets...), side.NotNets...)
			}
		}
	}
	for i := range p.Tiers {
		add(p.Tiers[i].Policies)
	}
	add(p.Profiles)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

func (l *localAddrs) inside(p netip.Prefix) bool {
	a := l.addrs[indexOf(p.Addr())]
	return a.IsValid() && p.Contains(a)
}

func (v *variant) fits(f *fold, l *localAddrs) bool {
	for t, a := range l.addrs {
		if a.IsValid() != v.has[t] {
			return false
		}
	}
	for i, p := range f.nets {
		if l.inside(p) != v.inside[i] {
			return false
		}
	}
	for q, in := range v.answers {
		if l.in(q) != in {
			return false
		}
	}
	return true
}

// expandAll returns the program of a policy for an endpoint of the namespace with these addresses, which must be the
// same for each.
func (c *Compiler) expandAll(f *fold, l *localAddrs, namespace string) (*program, error) {
	prog, err := c.expand(f, l, namespace)
	for _, a := range l.more {
		if err != nil {
			break
		}
		first, other := l.addrs[indexOf(a)], *l
		other.set(a)
		var same *program
		if same, err = c.expand(f, &other, namespace); err == nil && same != prog {
			err = fmt.Errorf("%s and %s: %w", first, a, ErrOwnAddresses)
		}
	}
	if err != nil {
		return nil, err
	}
	return prog, nil
}

// expand returns the program of a policy for an endpoint with these addresses, the first of each family. It is prepared.
func (c *Compiler) expand(f *fold, l *localAddrs, namespace string) (*program, error) {
	v := f.variant(l)
	if v.program != nil || v.err != nil {
		return v.program, v.err
	}
	if v.cost != (Cost{}) { // it is known what it takes: without room for it there is nothing to do
		if err := c.ledger.room(namespace, v.cost); err != nil {
			return nil, err
		}
	}
	p, err := v.making.x.Result(f.policy)
	defer func(made *expansion) { made.end() }(v.making)
	v.making = nil
	if err != nil {
		v.err = err
		return nil, err
	}
	v.cost = costOf(p)
	if text := v.cost.over(c.ledger.budget.Direction); text != "" {
		v.err = fmt.Errorf("%s policy: %w: %s", p.IDs[len(p.IDs)-1].Direction, match.ErrOverLimit, text)
		return nil, v.err
	}
	if v.program = c.equal(f.policy.Direction, p); v.program != nil {
		return v.program, nil
	}
	if err := c.ledger.room(namespace, v.cost); err != nil {
		return nil, err
	}
	v.program = c.newProgram(f.policy.Direction, p)
	return v.program, nil
}

// variant returns the variant for an endpoint with these addresses, a new one if there is none.
func (f *fold) variant(l *localAddrs) *variant {
	f.variants = slices.DeleteFunc(f.variants, func(v *variant) bool { return v.program != nil && v.program.gone })
	for _, v := range f.variants {
		if v.fits(f, l) {
			return v
		}
	}
	v := &variant{answers: map[question]bool{}, inside: make([]bool, len(f.nets))}
	for t, a := range l.addrs {
		v.has[t] = a.IsValid()
	}
	for i, p := range f.nets {
		v.inside[i] = l.inside(p)
	}
	f.variants = append(f.variants, v)
	return v
}
