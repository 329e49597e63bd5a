package iptables

import (
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// applied is the record of our part of the kernel's table: as it was last read, with the writes since.
type applied struct {
	known   bool
	dormant bool // see Stamp
	chains  map[string]believed
	jumps   map[string]entrance // of built-in chains
	users   map[string]string   // own chains that chains of others go to, with one of these
}

// believed is the record of one of our chains. It has a digest of the printed text: as long as that is the same, the chain need not
// be parsed again.
type believed struct {
	digest  ruleset.Digest
	printed [16]byte // zero: not read since it was written
	rules   int
}

// entrance are the rules of a built-in chain that go to our chains.
type entrance struct {
	rules []string
	first bool // no rules stand before them, except those of other agents
}

// difference lists the writes of one transaction.
type difference struct {
	write  []ruleset.Chain // created or emptied, then filled
	empty  []string        // chains to delete that others go to: emptied only
	remove []string
	jumps  []string            // built-in chains
	stale  map[string][]string // rules of other built-in chains that go to chains to delete
}

func (d *difference) none() bool {
	return len(d.write) == 0 && len(d.empty) == 0 && len(d.remove) == 0 && len(d.jumps) == 0 && len(d.stale) == 0
}

// difference compares the desired chains with the record of the kernel's. After a transaction it looks only at changes since.
func (t *Table) difference() (d difference) {
	for _, name := range slices.Sorted(maps.Keys(t.desired.changed)) {
		want, isWanted := t.desired.chains[name]
		have, exists := t.have.chains[name]
		switch {
		case isWanted && (!exists || have.digest != want.digest):
			d.write = append(d.write, want.chain)
		case !isWanted && exists && t.have.users[name] == "":
			d.remove = append(d.remove, name)
		case !isWanted && exists && have.rules > 0:
			d.empty = append(d.empty, name)
		}
		if rules, ok := t.desired.jumps[name]; ok && !t.have.jumps[name].is(rules) {
			d.jumps = append(d.jumps, name)
		}
	}
	d.stale = t.stale()
	return d
}

// stale returns the rules to delete from built-in chains for which no jumps are desired: rules that go to a chain which is to be
// deleted.
func (t *Table) stale() map[string][]string {
	stale := map[string][]string{}
	for builtIn, e := range t.have.jumps {
		if _, desired := t.desired.jumps[builtIn]; desired {
			continue
		}
		for _, rule := range e.rules {
			target, _ := ruleset.Target(rule)
			if _, desired := t.desired.chains[target]; !desired && !t.isKept(target) {
				stale[builtIn] = append(stale[builtIn], rule)
			}
		}
	}
	return stale
}

func (e entrance) is(rules []string) bool {
	return slices.EqualFunc(e.rules, rules, func(a, b string) bool {
		return a == b || ruleset.Canonical(a) == ruleset.Canonical(b)
	}) && (e.first || len(rules) == 0)
}

// transaction returns the text for iptables-restore: it creates chains before rules go to them, and deletes chains after the last
// rule that goes to them.
func (t *Table) transaction(d difference) string {
	var b strings.Builder
	size := 64
	for _, c := range d.write {
		for _, rule := range c.Rules {
			size += len(c.Name) + len(rule) + 8
		}
		size += 2 * len(c.Name)
	}
	b.Grow(size)
	line := func(words ...string) {
		for i, word := range words {
			if i > 0 && word != "" {
				b.WriteByte(' ')
			}
			b.WriteString(word)
		}
		b.WriteByte('\n')
	}
	line("*" + t.name)
	for _, c := range d.write {
		line(":"+c.Name, "- [0:0]")
	}
	for _, name := range slices.Concat(d.empty, d.remove) {
		line(":"+name, "- [0:0]")
	}
	for _, name := range d.jumps {
		for _, rule := range t.have.jumps[name].rules {
			if !t.have.unknown(name) { // all of them are deleted by their handles otherwise
				line("-D", name, rule)
			}
		}
		for i, rule := range t.desired.jumps[name] {
			line("-I", name, itoa(i+1), rule)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.stale)) {
		for _, rule := range d.stale[name] {
			if !t.have.unknown(name) {
				line("-D", name, rule)
			}
		}
	}
	for _, c := range d.write {
		for _, rule := range c.Rules {
			line("-A", c.Name, rule)
		}
	}
	for _, name := range d.remove {
		line("-X", name)
	}
	line("COMMIT")
	return b.String()
}

// wrote adds the difference to the record of the kernel's table.
func (t *Table) wrote(d difference) {
	for _, c := range d.write {
		t.have.chains[c.Name] = believed{digest: t.desired.chains[c.Name].digest, rules: len(c.Rules)}
	}
	for _, name := range d.empty {
		t.have.chains[name] = believed{digest: ruleset.Chain{Name: name}.Digest()}
	}
	for _, name := range d.remove {
		delete(t.have.chains, name)
	}
	for _, name := range d.jumps {
		t.have.jumps[name] = entrance{t.desired.jumps[name], true}
	}
	for name, stale := range d.stale {
		e := t.have.jumps[name]
		e.rules = slices.DeleteFunc(slices.Clone(e.rules), func(rule string) bool { return slices.Contains(stale, rule) })
		if t.have.jumps[name] = e; len(e.rules) == 0 {
			delete(t.have.jumps, name)
		}
	}
	t.desired.written()
}

// entries returns the number of entries by which the difference makes a legacy table larger: rules count one each, and each
// user-defined chain two more, for its head and the return at its end.
func (t *Table) entries(d difference) (grows int) {
	for _, c := range d.write {
		grows += len(c.Rules)
		if before, exists := t.have.chains[c.Name]; exists {
			grows -= before.rules
		} else {
			grows += 2
		}
	}
	for _, name := range d.empty {
		grows -= t.have.chains[name].rules
	}
	for _, name := range d.remove {
		grows -= t.have.chains[name].rules + 2
	}
	for _, name := range d.jumps {
		grows += len(t.desired.jumps[name]) - len(t.have.jumps[name].rules)
	}
	for _, rules := range d.stale {
		grows -= len(rules)
	}
	return grows
}
