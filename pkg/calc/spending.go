package calc

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/selector"
)

// Limits on the addresses that selectors and named ports of one namespace's policies match on a node, so that one tenant does
// not use all time and memory for finding them: a selector that means every pod of a large cluster costs as much as ten
// thousand that mean one, and a policy holds thousands.
const (
	// MaxFound is the sum, over all different ones, of the groups of pods that are tried and the addresses that are found.
	MaxFound = 1 << 19
	// MaxFoundPerItem is added for each pod of the cluster: some selectors that mean all of them are always possible. One of another namespace
	// counts as often as it may be found for one selector.
	MaxFoundPerItem = 16
	// MaxReferences is how many different selectors, names of ports with a selector, and Services the policies of a namespace refer to.
	// Each may find any pod that comes later, or that changes its labels, and this is all that bounds what such a pod costs.
	MaxReferences = 1 << 13
	// triedInPart is which part of it may be looked at, or the rules of one policy, before what else there is to do has its turn.
	triedInPart = 8
	// longSelector is the length of a selector, in bytes, up to which a group that is tried with it counts once: that of an
	// object of Kubernetes may have 75,000 terms. One that is n times as long counts n times more.
	longSelector = selector.MaxLength
)

// costToRead is the cost of parsing a selector, whatever it is tried with. It is small beside that of a group if the selector is short.
func costToRead(text string) int { return max(0, len(text)-longSelector) / 16 }

// spending counts the addresses that the policies of each namespace make the index find. A namespace is charged what a definition costs when it
// comes to use it. The addresses that are found later are bounded in relief.go.
type spending struct {
	limit, perItem int
	references     int            // MaxReferences
	items          int            // endpoints and network sets
	further        map[string]int // by namespace: how much more its pods cost than one each, as a definition by named port may find them
	allFurther     int
	by             map[string]*spent
	refused        map[*ruleset]int // with the sum of its account at that time

	inParts bool
	tried   map[string]int // by account: what it took in the present flush to work out that rules are refused
}

// spent counts the use by one namespace's policies.
type spent struct {
	users map[*definition]charge
	sum   int // of their weights
}

// charge is what a namespace pays for a definition.
type charge struct {
	rulesets int // that use it
	weight   int // what it was when the first of them came
}

func newSpending() spending {
	return spending{limit: MaxFound, perItem: MaxFoundPerItem, references: MaxReferences, further: map[string]int{}, by: map[string]*spent{}, refused: map[*ruleset]int{}, tried: map[string]int{}}
}

// most is what a namespace may have found; its staged policies have a quarter of that besides.
func (s *spending) most(rs *ruleset) int { return s.mostOf(rs.account()) }

// mostOf is that of an account. Pods of other namespaces count as what they cost, so that no tenant has policies of others refused by the
// numbers that its pods give a name of ports.
func (s *spending) mostOf(account string) int {
	namespace, staged := strings.CutPrefix(account, stagedAccount)
	most := s.limit + s.perItem*(s.items+s.allFurther-s.further[namespace])
	if staged {
		most /= 4
	}
	return most
}

// count counts an item that comes, or with -1 goes.
func (s *spending) count(it *item, delta int) {
	s.items += delta
	further := it.Value.weight(1) - it.Value.nets() - 1
	for name := range it.Group().PortNames() {
		n := 0
		for range it.Group().PortsNamed(name) {
			n++
		}
		further = max(further, it.Value.weight(min(n, mostSets))-it.Value.nets()-1)
	}
	if further == 0 {
		return
	}
	namespace, _ := namespaceOf(it.Group())
	s.allFurther += delta * further
	if s.further[namespace] += delta * further; s.further[namespace] == 0 {
		delete(s.further, namespace)
	}
}

// mostReferences is likewise how many definitions a namespace may have.
func (s *spending) mostReferences(rs *ruleset) int {
	if rs.staged {
		return s.references / 4
	}
	return s.references
}

// hold charges a namespace for a ruleset that uses a definition, and reports whether none has done so before.
func (s *spending) hold(namespace string, d *definition) (first bool) {
	a := s.by[namespace]
	if a == nil {
		a = &spent{users: map[*definition]charge{}}
		s.by[namespace] = a
	}
	c := a.users[d]
	if c.rulesets++; c.rulesets == 1 {
		c.weight = d.cost()
		a.sum += c.weight
	}
	a.users[d] = c
	return c.rulesets == 1
}

// release takes one such charge back, and reports whether it was the last.
func (s *spending) release(namespace string, d *definition) (last bool) {
	a := s.by[namespace]
	c := a.users[d]
	if c.rulesets--; c.rulesets > 0 {
		a.users[d] = c
		return false
	}
	delete(a.users, d)
	if a.sum -= c.weight; len(a.users) == 0 {
		delete(s.by, namespace)
	}
	return true
}

// isTried reports whether enough rules of an account have been refused in the present flush: a namespace may have thousands of policies for
// which there is no room, and looking at each of them may take as long as finding all that it may have found. The others are looked at later.
func (s *spending) isTried(account string) bool {
	return s.inParts && s.tried[account] > s.mostOf(account)/triedInPart
}

// sumOf is what an account is charged.
func (s *spending) sumOf(account string) int {
	if a := s.by[account]; a != nil {
		return a.sum
	}
	return 0
}

// roomier are the refused rulesets whose account is charged less than when they were refused.
func (s *spending) roomier() map[*ruleset]struct{} {
	list := map[*ruleset]struct{}{}
	for rs, sum := range s.refused {
		if s.sumOf(rs.account()) < sum {
			list[rs] = struct{}{}
		}
	}
	return list
}

// besides is the sum of a namespace, and how many definitions it has, without those that only one given ruleset uses.
func (s *spending) besides(rs *ruleset) (sum, references int) {
	a := s.by[rs.account()]
	if a == nil {
		return 0, 0
	}
	sum, references = a.sum, len(a.users)
	for d := range rs.uses {
		if c := a.users[d]; c.rulesets == 1 {
			sum -= c.weight
			references--
		}
	}
	return sum, references
}

// isHeld reports whether another ruleset of the namespace uses a definition, so that it costs this one nothing.
func (s *spending) isHeld(rs *ruleset, d *definition) bool {
	a := s.by[rs.account()]
	if a == nil {
		return false
	}
	users := a.users[d].rulesets
	if _, own := rs.uses[d]; own {
		users--
	}
	return users > 0
}

// cost is what a definition costs that no other ruleset of the namespace uses: what it did when it came, if this one uses it already.
func (s *spending) cost(rs *ruleset, d *definition) int {
	if _, own := rs.uses[d]; own {
		return s.by[rs.account()].users[d].weight
	}
	return d.cost()
}

// over says why a ruleset is refused: it would find too much, or refers to too many. It is the same text as long as it is.
func (s *spending) over(rs *ruleset, tooMany bool) string {
	of, part := "policies", 1
	if rs.staged {
		of, part = "staged policies", 4
	}
	if tooMany {
		return fmt.Sprintf("namespace %s's %s refer to too many different selectors, named ports and Services: limit %d",
			rs.key.Namespace, of, s.mostReferences(rs))
	}
	return fmt.Sprintf("the selectors and named ports of namespace %s's %s match too many addresses: limit %d addresses, and %d for each pod of the cluster",
		rs.key.Namespace, of, s.limit/part, s.perItem/part)
}
