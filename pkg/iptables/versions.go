package iptables

import (
	"slices"

	"github.com/margay-project/margay/pkg/ruleset"
)

// versions are the former contents of chains that transactions have replaced since Observe. A reading that began after Observe has of
// each chain one of them, or the present one.
type versions struct {
	wanted  func() bool
	chains  map[string][]version
	jumps   map[string][][]string // of built-in chains
	n       int
	overrun bool // there was no room for all, or they are not wanted any more
}

// version is one content of a chain; not exists: there was no such chain.
type version struct {
	digest ruleset.Digest
	exists bool
}

// mostVersions bounds the former contents that are kept.
const mostVersions = 1 << 16

// Observe makes the Table keep the former contents of chains that it replaces from now on, for Reading.Altered, as long as wanted
// returns true.
func (t *Table) Observe(wanted func() bool) {
	t.former = &versions{wanted: wanted, chains: map[string][]version{}, jumps: map[string][][]string{}}
}

// keep keeps what a difference has replaced. have is the record of the kernel's table before.
func (v *versions) keep(have applied, d difference) {
	if v == nil || v.overrun {
		return
	}
	if v.n += len(d.write) + len(d.empty) + len(d.remove) + len(d.jumps) + len(d.stale); v.n > mostVersions || !v.wanted() {
		v.chains, v.jumps, v.overrun = nil, nil, true
		return
	}
	replaced := func(name string) {
		was, exists := have.chains[name]
		if is := (version{was.digest, exists}); !slices.Contains(v.chains[name], is) {
			v.chains[name] = append(v.chains[name], is)
		}
	}
	for _, c := range d.write {
		replaced(c.Name)
	}
	for _, name := range slices.Concat(d.empty, d.remove) {
		replaced(name)
	}
	for _, name := range d.jumps {
		v.jumps[name] = append(v.jumps[name], have.jumps[name].rules)
	}
	for name := range d.stale {
		v.jumps[name] = append(v.jumps[name], have.jumps[name].rules)
	}
}

// had reports whether a chain had this content at some time since Observe, before the present one.
func (v *versions) had(name string, is version) bool { return slices.Contains(v.chains[name], is) }

// left reports whether the last transaction has left a chain, which is to be changed, with this content.
func (d *desired) left(name string, is version) bool {
	before, known := d.before[name]
	return known && before == is
}
