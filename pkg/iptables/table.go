package iptables

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Table is one table of one family: the chains that are desired in it, and a record of those in the kernel. It owns the chains of
// worlds whose names are the prefix and one letter, mgyA-… and mgyB-… for mgy, and the rules of built-in chains that go to them. It
// writes nothing else.
//
// Set, Remove, SetJumps and Keep change the desired state; Apply writes the differences, in one transaction.
//
// Not safe for concurrent use.
type Table struct {
	kernel  kernel
	family  Family
	name    string
	prefix  string
	depth   int
	kept    []string // prefixes of chains that stay as they are
	desired desired
	have    applied
	watch   watch
	former  *versions                           // nil: Observe was not called
	jumps   atomic.Pointer[map[string][]string] // desired.jumps, for readings by other goroutines
}

// Table returns the table of that name with no chain desired. Nothing is read before the first Apply or Check. An agent with
// another name beside this one needs another prefix; it may begin with that of this one.
func (t *Tools) Table(family Family, name, prefix string) *Table {
	return &Table{kernel: t.kernel, family: family, name: name, prefix: prefix, depth: t.Backend.Depth(), desired: newDesired()}
}

// owns reports whether a name is that of a chain which this Table owns.
func (t *Table) owns(chain string) bool {
	world, _, dash := strings.Cut(chain, "-")
	return dash && len(world) == len(t.prefix)+1 && strings.HasPrefix(world, t.prefix)
}

// String names the table for people: "IPv4 table mangle".
func (t *Table) String() string { return fmt.Sprintf("%v table %s", t.family, t.name) }

// Set makes the chain desired, with these rules in place of those it had. The Table keeps the slice of rules.
func (t *Table) Set(chain ruleset.Chain) error {
	before, known := t.desired.chains[chain.Name]
	if known && slices.Equal(before.chain.Rules, chain.Rules) {
		return nil
	}
	if err := t.checkOwn(chain.Name); err != nil {
		return err
	}
	if err := chain.Check(); err != nil {
		return fmt.Errorf("%v: %w", t, err)
	}
	t.desired.set(chain)
	return nil
}

func (t *Table) checkOwn(name string) error {
	switch {
	case !t.owns(name):
		return fmt.Errorf("%v: chain %s does not begin with %s, one letter and a dash", t, name, t.prefix)
	case isSeal(name):
		return fmt.Errorf("%v: chain %s has the name of a seal", t, name)
	case t.isKept(name):
		return fmt.Errorf("%v: chain %s is one of those to be kept", t, name)
	}
	return nil
}

// Remove makes the chain undesired. No desired rule may go to it at the next Apply.
func (t *Table) Remove(name string) { t.desired.remove(name) }

// Changed reports whether the desired state has changed since the last successful Apply. If not, Apply writes only repairs of
// alterations that Check has found.
func (t *Table) Changed() bool { return len(t.desired.changed) > 0 }

// Len is the number of chains desired, without seals.
func (t *Table) Len() int {
	n := len(t.desired.chains)
	for name := range t.desired.chains {
		if isSeal(name) {
			n--
		}
	}
	return n
}

// SetJumps makes the built-in chain begin with these rules, in this order, and have no other rules that go to chains of this Table.
// Each must go to such a chain by -j or -g; without rules, all rules that go to our chains are removed. Until SetJumps is called for
// a built-in chain, its rules stay as they are, except that Apply deletes rules that go to a chain which it deletes.
func (t *Table) SetJumps(builtIn string, rules ...string) error {
	for _, rule := range rules {
		if err := ruleset.CheckRule(rule); err != nil {
			return fmt.Errorf("%v, chain %s: %w", t, builtIn, err)
		}
		if target, _ := ruleset.Target(rule); !t.owns(target) {
			return fmt.Errorf("%v: rule %q of chain %s does not go to a chain of %s", t, rule, builtIn, t.prefix)
		}
	}
	if before, known := t.desired.jumps[builtIn]; !known || !slices.Equal(before, rules) {
		t.desired.setJumps(builtIn, slices.Clone(rules))
		known := maps.Clone(t.desired.jumps)
		t.jumps.Store(&known)
	}
	return nil
}

// Keep leaves chains whose names begin with one of the prefixes as they are: Apply does not delete them and Check does not compare
// them. So the chains of an earlier agent stay in force until those of this one are complete. A later call replaces the list;
// without a prefix nothing is kept.
func (t *Table) Keep(prefixes ...string) {
	t.kept = slices.Clone(prefixes)
	t.have.known = false
}

func (t *Table) isKept(name string) bool {
	return slices.ContainsFunc(t.kept, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}
