package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Reading is a table as it was read, for Altered.
type Reading struct {
	Saved   *ruleset.Saved
	dormant bool                      // see Stamp
	wrong   *MisplacedError           // then nothing else was read
	digests map[string]ruleset.Digest // of our chains
}

// ReadAll returns a whole table without counters. Any goroutine may call it. It calls pause often; an error of pause ends it.
func ReadAll(ctx context.Context, t *Table, pause func() error) (*Reading, error) {
	stamp, err := t.kernel.stamp(t.family, t.name)
	if err != nil {
		return nil, fmt.Errorf("read %v: %w", t, err)
	}
	saved, err := t.saved(ctx, false)
	if wrong, ok := errors.AsType[*MisplacedError](err); ok {
		return &Reading{Saved: &ruleset.Saved{Name: t.name}, wrong: wrong}, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Reading{Saved: saved, dormant: stamp.Dormant, digests: map[string]ruleset.Digest{}}
	for i := range saved.Chains {
		if err := pause(); err != nil {
			return nil, err
		}
		if c := &saved.Chains[i]; t.owns(c.Name) {
			r.digests[c.Name] = c.Chain().Digest()
		}
	}
	return r, nil
}

// Altered returns how a reading of a table, which began after Observe, differs from the desired chains of t and from those that its
// transactions have replaced since. It changes nothing. skipped is why not all chains were compared; empty: all were.
func (r *Reading) Altered(t *Table) (findings []Finding, skipped string) {
	if r.wrong != nil {
		return []Finding{{r.wrong.Chain, r.wrong.What + "; policy is not enforced there"}}, ""
	}
	if t.former == nil || t.former.overrun {
		return nil, "the agent has written too many chains during the reading"
	}
	if r.dormant {
		findings = append(findings, Finding{What: dormant})
	}
	waiting := ""
	names := map[string]bool{}
	for name := range r.digests {
		names[name] = !t.isKept(name)
	}
	for name := range t.desired.chains {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		want, desired := t.desired.chains[name]
		digest, exists := r.digests[name]
		switch {
		case !names[name]:
		case exists == desired && digest == want.digest, t.former.had(name, version{digest, exists}):
		case t.desired.changed[name] && t.desired.left(name, version{digest, exists}):
		case t.desired.changed[name] || !t.have.known:
			waiting = cmp.Or(waiting, name)
		case !exists:
			findings = append(findings, Finding{name, "it is not there"})
		case !desired:
			findings = append(findings, Finding{name, "it was added"})
		default:
			findings = append(findings, Finding{name, altered(r.Saved.Chain(name), want.chain.Rules)})
		}
	}
	for i := range r.Saved.Chains {
		switch c := &r.Saved.Chains[i]; {
		case !c.BuiltIn():
		case t.desired.changed[c.Name] || !t.have.known:
			if len(alteredEntrance(t, c)) > 0 {
				waiting = cmp.Or(waiting, c.Name)
			}
		default:
			findings = append(findings, alteredEntrance(t, c)...)
		}
	}
	if waiting != "" {
		skipped = fmt.Sprintf("chain %s was to be written during the reading", waiting)
	}
	return findings, skipped
}

// alteredEntrance returns the differences in a built-in chain's rules that go to our chains.
func alteredEntrance(t *Table, c *ruleset.SavedChain) (findings []Finding) {
	want, desired := t.desired.jumps[c.Name]
	is := entranceOf(c, t.owns)
	others := slices.DeleteFunc(slices.Clone(is.rules), func(rule string) bool {
		target, _ := ruleset.Target(rule)
		return t.isKept(target)
	})
	switch {
	case !desired && len(others) == 0, is.is(want), slices.ContainsFunc(t.former.jumps[c.Name], is.is):
	case len(is.rules) == 0:
		findings = append(findings, Finding{c.Name, fmt.Sprintf("it lacks the rule %q", strings.Join(want, `", "`))})
	case !is.first:
		findings = append(findings, Finding{c.Name, fmt.Sprintf("rule 1, %q, stands before ours, %q", c.Rules[0].Text, is.rules)})
	default:
		findings = append(findings, Finding{c.Name, fmt.Sprintf("its rules to our chains are %q, not %q", is.rules, want)})
	}
	return findings
}
