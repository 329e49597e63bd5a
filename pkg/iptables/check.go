package iptables

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Finding is one alteration by others.
type Finding struct {
	Chain string // empty: the whole table
	What  string // "rule 2 is …, not …", in one line
}

// String returns one line for people.
func (f Finding) String() string {
	if f.Chain == "" {
		return f.What
	}
	return "chain " + f.Chain + ": " + f.What
}

// Check reads the table and compares every chain of ours, and the rules of built-in chains that go to them, with those last read or
// written. It returns the alterations by others, and writes nothing: the next Apply repairs them, with all else that is desired, in
// one transaction, before which it makes a dormant table active. A change that is desired and not yet applied is no finding. The first Check, and the first after a failed
// transaction, have nothing to compare with and find nothing.
func (t *Table) Check(ctx context.Context) ([]Finding, error) {
	before := t.have
	saved, err := t.read(ctx)
	if err != nil || !before.known {
		return nil, err
	}
	var findings []Finding
	if t.have.dormant {
		findings = append(findings, Finding{What: dormant})
	}
	names := maps.Clone(t.have.chains)
	maps.Copy(names, before.chains)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, existed := before.chains[name]
		is, exists := t.have.chains[name]
		switch {
		case !exists:
			findings = append(findings, Finding{name, "it is not there"})
		case !existed:
			findings = append(findings, Finding{name, "it was added"})
		case was.digest != is.digest:
			findings = append(findings, Finding{name, altered(saved.Chain(name), t.desired.chains[name].chain.Rules)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.jumps)) {
		was, is := before.jumps[name], t.have.jumps[name]
		if !is.is(was.rules) {
			findings = append(findings, Finding{name, fmt.Sprintf("its rules to our chains are %q, not %q as its first", is.rules, was.rules)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.have.jumps)) {
		if _, known := before.jumps[name]; known || len(t.have.jumps[name].rules) == 0 { // it may have become one of ours since, without rules
			continue
		}
		findings = append(findings, Finding{name, fmt.Sprintf("it has rules to our chains: %q", t.have.jumps[name].rules)})
		if _, ok := t.desired.jumps[name]; !ok {
			t.desired.changed[name] = true
			t.desired.jumps[name] = nil // they came after our own, so they are not of an earlier agent
		}
	}
	return findings, nil
}

// altered describes how a chain differs from the desired rules.
func altered(chain *ruleset.SavedChain, want []string) string {
	for i, rule := range chain.Rules {
		switch {
		case i >= len(want):
			return fmt.Sprintf("rule %d, %q, was added", i+1, rule.Text)
		case ruleset.Canonical(rule.Text) != ruleset.Canonical(want[i]):
			return fmt.Sprintf("rule %d is %q, not %q", i+1, rule.Text, want[i])
		}
	}
	return fmt.Sprintf("it has %d rules, not %d", len(chain.Rules), len(want))
}

// Read returns the whole table with its counters, chains of others too.
func (t *Table) Read(ctx context.Context) (*ruleset.Saved, error) { return t.saved(ctx, true) }

func (t *Table) saved(ctx context.Context, counters bool) (*ruleset.Saved, error) {
	known := t.jumps.Load()
	if err := t.kernel.misplaced(t.family, t.name, known); err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	output, err := t.kernel.save(ctx, t.family, t.name, counters)
	if err != nil {
		return nil, fmt.Errorf("read %v: %w", t, err)
	}
	tables, err := ruleset.Parse(output)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	for i := range tables {
		if tables[i].Name == t.name {
			if known != nil {
				err = recall(ctx, t, &tables[i], *known)
			}
			return &tables[i], errors.Join(err, reveal(&tables[i], t))
		}
	}
	return &ruleset.Saved{Name: t.name}, nil
}

// read replaces the record of the kernel's table by its present contents, and makes the next Apply compare everything with it.
func (t *Table) read(ctx context.Context) (*ruleset.Saved, error) {
	start := time.Now()
	stamp, stampErr := t.kernel.stamp(t.family, t.name)
	contents, contentsErr := t.kernel.contents(t.family, t.name)
	t.watch.look.spent(start)
	saved, err := t.saved(ctx, false)
	if err != nil {
		return nil, err
	}
	have := applied{known: true, dormant: stamp.Dormant, chains: make(map[string]believed, len(saved.Chains)), jumps: map[string]entrance{}, users: map[string]string{}}
	for i := range saved.Chains {
		chain := &saved.Chains[i]
		switch {
		case chain.BuiltIn():
			if e := entranceOf(chain, t.owns); len(e.rules) > 0 {
				have.jumps[chain.Name] = e
			}
		case !t.owns(chain.Name):
			t.noteUses(chain, have.users)
		case !t.isKept(chain.Name):
			have.chains[chain.Name] = t.recognise(chain)
		}
	}
	for name, rules := range t.desired.jumps {
		if _, any := have.jumps[name]; !any && len(rules) == 0 {
			have.jumps[name] = entrance{first: true}
		}
	}
	t.have = have
	for _, names := range [][]string{slices.Collect(maps.Keys(have.chains)), slices.Collect(maps.Keys(t.desired.chains)), slices.Collect(maps.Keys(t.desired.jumps))} {
		for _, name := range names {
			t.desired.changed[name] = true
		}
	}
	t.watch.looked(stamp, contents, errors.Join(stampErr, contentsErr))
	t.watch.check.spent(start)
	return saved, nil
}

// entranceOf finds the rules of a built-in chain that go to own chains.
func entranceOf(chain *ruleset.SavedChain, owns func(string) bool) entrance {
	rules, first := chain.Entrance(owns)
	return entrance{rules, first}
}

// noteUses notes which of our chains a chain of others goes to: the kernel refuses to delete those.
func (t *Table) noteUses(chain *ruleset.SavedChain, users map[string]string) {
	for _, rule := range chain.Rules {
		if !strings.Contains(rule.Text, t.prefix) {
			continue
		}
		if target, _ := ruleset.Target(rule.Text); t.owns(target) {
			users[target] = chain.Name
		}
	}
}

// recognise returns the record of a chain of ours. If the chain is printed as before, it keeps the earlier record.
func (t *Table) recognise(chain *ruleset.SavedChain) believed {
	h := sha256.New()
	for _, rule := range chain.Rules {
		h.Write([]byte(rule.Text))
		h.Write([]byte{'\n'})
	}
	b := believed{rules: len(chain.Rules)}
	copy(b.printed[:], h.Sum(nil))
	if before, ok := t.have.chains[chain.Name]; ok && before.printed == b.printed {
		b.digest = before.digest
		return b
	}
	b.digest = chain.Chain().Digest()
	return b
}
