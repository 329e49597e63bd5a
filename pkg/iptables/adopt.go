package iptables

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Adopt returns the table of that name with everything desired that a reading has of one world: its chains, whose names begin with world, and
// the rules of built-in chains that go to them. So Check and Apply keep in force what an earlier agent has written. Keep the chains of other
// worlds: they are not desired.
func (t *Tools) Adopt(family Family, name, prefix, world string, saved *ruleset.Saved) (*Table, error) {
	table := t.Table(family, name, prefix)
	for i := range saved.Chains {
		chain := &saved.Chains[i]
		if chain.BuiltIn() {
			rules, _ := chain.Entrance(func(name string) bool { return strings.HasPrefix(name, world) })
			for _, rule := range rules {
				if strings.HasPrefix(rule, matches) {
					return nil, fmt.Errorf("%v: iptables cannot print rules of %s beside a jump to %s", table, chain.Name, world)
				}
			}
			if len(rules) == 0 {
				continue
			}
			if err := table.SetJumps(chain.Name, rules...); err != nil {
				return nil, err
			}
			continue
		}
		if !strings.HasPrefix(chain.Name, world) || !table.owns(chain.Name) {
			continue
		}
		adopted := chain.Chain()
		if err := adopted.Check(); err != nil {
			return nil, fmt.Errorf("%v: %w", table, err)
		}
		table.desired.set(adopted)
	}
	clear(table.desired.sums) // the seal stays as it was read, too
	return table, nil
}
