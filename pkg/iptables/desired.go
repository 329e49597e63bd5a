package iptables

import (
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// desired is our desired part of a table: chains, and rules of built-in chains that go to them.
type desired struct {
	chains  map[string]wanted
	jumps   map[string][]string // of built-in chains
	graph   ruleset.Graph
	checked bool                    // the present graph has passed check
	sums    map[string]*ruleset.Sum // of worlds, for their seals
	changed map[string]bool         // chains, built-in ones too, whose desired rules changed since the last transaction
	before  map[string]version      // what the last transaction has left of those that Set, Remove and seals have changed
}

// wanted is a desired chain.
type wanted struct {
	chain  ruleset.Chain
	digest ruleset.Digest
}

func newDesired() desired {
	return desired{chains: map[string]wanted{}, jumps: map[string][]string{}, sums: map[string]*ruleset.Sum{}, changed: map[string]bool{},
		before: map[string]version{}}
}

func isSeal(name string) bool { return strings.HasSuffix(name, "-"+ruleset.SealChain) }

func (d *desired) set(chain ruleset.Chain) {
	d.subtract(chain.Name)
	d.change(chain.Name)
	want := wanted{chain, chain.Digest()}
	d.chains[chain.Name] = want
	if d.graph.Set(chain) {
		d.checked = false
	}
	if !isSeal(chain.Name) {
		d.sum(ruleset.World(chain.Name)).Add(want.digest)
	}
}

func (d *desired) remove(name string) {
	if _, known := d.chains[name]; !known {
		return
	}
	d.subtract(name)
	d.change(name)
	delete(d.chains, name)
	d.graph.Remove(name)
	d.checked = false
}

// change notes that the desired rules of a chain are about to change.
func (d *desired) change(name string) {
	if !d.changed[name] {
		want, is := d.chains[name]
		d.changed[name], d.before[name] = true, version{want.digest, is}
	}
}

// written notes that the last transaction has left everything as desired.
func (d *desired) written() {
	clear(d.changed)
	clear(d.before)
}

// subtract removes the chain, if it is desired, from the sum of its world.
func (d *desired) subtract(name string) {
	if before, known := d.chains[name]; known && !isSeal(name) {
		d.sum(ruleset.World(name)).Remove(before.digest)
	}
}

func (d *desired) sum(world string) *ruleset.Sum {
	s := d.sums[world]
	if s == nil {
		s = &ruleset.Sum{}
		d.sums[world] = s
	}
	return s
}

func (d *desired) setJumps(builtIn string, rules []string) {
	d.entrances(builtIn, (*ruleset.Sum).Remove)
	d.jumps[builtIn] = rules
	d.entrances(builtIn, (*ruleset.Sum).Add)
	d.changed[builtIn] = true
	if d.graph.Set(ruleset.Chain{Name: builtIn, Rules: rules}) {
		d.checked = false
	}
}

// entrances adds the rules of a built-in chain to the sums of the worlds that they go to, or removes them.
func (d *desired) entrances(builtIn string, do func(*ruleset.Sum, ruleset.Digest)) {
	worlds := map[string][]string{}
	for _, rule := range d.jumps[builtIn] {
		target, _ := ruleset.Target(rule)
		world := ruleset.World(target)
		worlds[world] = append(worlds[world], rule)
	}
	for world, rules := range worlds {
		do(d.sum(world), ruleset.Entrance(builtIn, rules))
	}
}

// reseal computes the seals of all worlds from their other chains, except those of worlds that are kept.
func (d *desired) reseal(kept func(chain string) bool) {
	for world, sum := range d.sums {
		name := world + "-" + ruleset.SealChain
		switch seal := sum.Seal(world); {
		case kept(name):
		case *sum == (ruleset.Sum{}):
			d.remove(name)
			delete(d.sums, world)
		case !slices.Equal(d.chains[name].chain.Rules, seal.Rules):
			d.set(seal)
		}
	}
}

// check refuses chains whose jumps the kernel would refuse, so that the error names the chain.
func (d *desired) check(depth int) error {
	if d.checked {
		return nil
	}
	err := d.graph.Check(slices.Sorted(maps.Keys(d.jumps)), depth)
	d.checked = err == nil
	return err
}
