package calc

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// lookup is how to find the members of a definition that does not exist yet.
type lookup struct {
	tried func() int                // what that costs without the members
	finds func(most int) (int, int) // what it finds, or more than most, and by port in how many sets
	fill  func(*definition)
}

// definition notes that a rule uses a definition and returns it. It makes it if it does not exist yet. Nil: there is no room for it, or this
// is an estimate.
func (b *builder) definition(key definitionKey, by lookup) *definition {
	long := len(key.selector) / longSelector
	b.spent += 1 + long // a rule may name one port of very many, and there may be very many rules
	if ports, planned := b.planned[key]; planned {
		b.spent += ports
		b.over = b.over || b.spent > b.most
		return nil
	}
	d := b.sets.definitions[key]
	if d != nil && d.closed {
		b.sets.relief.later[b.rs], b.over = struct{}{}, true
	}
	if b.tooMany = b.tooMany || b.references >= b.mostReferences && !b.has(d); b.tooMany {
		b.over = true
	}
	if d == nil && !b.over {
		if d = b.define(key, by, long); d == nil {
			return nil
		}
	}
	if b.over = b.over || b.spent > b.most; b.over {
		return nil
	}
	if _, known := b.uses[d]; known {
		return d
	}
	if !b.has(d) {
		b.references++
		b.spent += b.sets.spending.cost(b.rs, d)
	}
	b.uses[d] = struct{}{}
	return d
}

// define makes a definition, if there is room for all that its policy needs: what is found for a policy that is refused in the end is work and
// memory for nothing, and a tenant may have very many of these. Nil: there is none, or this is an estimate.
func (b *builder) define(key definitionKey, by lookup, long int) *definition {
	cost := 1 + costToRead(key.selector)
	if b.over = b.spent+cost > b.most; !b.over {
		cost += by.tried() * (1 + long)
		b.over = b.spent+cost > b.most
	}
	switch {
	case b.over:
		return nil
	case b.planned != nil:
		found, ports := by.finds(b.most - b.spent - cost)
		b.planned[key] = ports
		b.references++
		b.spent += cost + max(1, ports)*long + found + ports // as ports counts them
		return nil
	case !b.estimated:
		if b.estimate(); b.over {
			return nil
		}
	}
	d := b.sets.define(key)
	by.fill(d)
	d.weight += cost + len(d.sets)*long
	return d
}

// estimate works out whether there is room for all rules, without making anything.
func (b *builder) estimate() {
	e := newBuilder(b.sets, b.rs, b.source)
	e.planned = map[definitionKey]int{}
	if e.all(); e.over {
		b.spent = e.spent // nothing else is
	}
	b.estimated, b.over, b.tooMany = true, e.over, e.tooMany
}

// has reports whether the namespace has a definition already.
func (b *builder) has(d *definition) bool {
	if d == nil {
		return false
	}
	_, known := b.uses[d]
	return known || b.sets.spending.isHeld(b.rs, d)
}

// candidates is how many groups a selector is tried with. A rule may refer to one by very many names of ports.
func (b *builder) candidates(sel *selector.Selector) int {
	n, known := b.tried[sel]
	if !known {
		n = b.sets.selected.labels.Candidates(sel)
		put(&b.tried, sel, n)
	}
	return n
}

// foundBy is what a definition by selector finds, or more than most, and in how many sets by port.
func (b *builder) foundBy(key definitionKey, sel *selector.Selector, most int) (n, ports int) {
	numbers := newNumberCount()
	for gr := range b.sets.selected.labels.Matching(sel) {
		if key.kind.byPort() {
			numbers.add(key, gr)
		}
		sets := key.setsFor(gr)
		for it := range gr.Items() {
			if n += it.Value.weight(sets); n > most {
				return n, numbers.sets()
			}
		}
	}
	return n, numbers.sets()
}

// setsFor is in how many sets of a definition by selector the addresses of a group that it finds are.
func (k definitionKey) setsFor(gr *group) (n int) {
	if k.kind == kindSelector {
		return 1
	}
	for port := range gr.PortsNamed(k.name) {
		if k.means(port) {
			n++
		}
	}
	return min(n, mostSets)
}

// mostSets is in how many sets of a definition by named port a pod may be: those past the limit are in one for each protocol.
const mostSets = MaxPortNumbers + 3

// numberCount counts the numbers for which a definition by named port has sets, as if it were made.
type numberCount struct {
	of  map[string]map[portKey]struct{} // by namespace, where the first MaxPortNumbers count
	all map[portKey]struct{}
}

func newNumberCount() *numberCount {
	return &numberCount{of: map[string]map[portKey]struct{}{}, all: map[portKey]struct{}{}}
}

func (c *numberCount) add(key definitionKey, gr *group) {
	namespace, limited := namespaceOf(gr)
	of := c.of[namespace]
	for port := range gr.PortsNamed(key.name) {
		k := keyOf(port)
		if !key.means(port) {
			continue
		}
		if _, known := of[k]; limited && !known && len(of) == MaxPortNumbers {
			k = portKey{protocol: k.protocol, past: true}
		} else if limited && !known {
			put(&of, k, struct{}{})
			c.of[namespace] = of
		}
		c.all[k] = struct{}{}
	}
}

func (c *numberCount) sets() int { return len(c.all) }

// weight is what it costs that an item is found whose addresses are in so many sets: each address in each set, as members.found counts them.
// A pod may have many addresses, and give a name of ports very many numbers.
func (it *contents) weight(sets int) int { return max(1, it.addrsOfOneVersion()*sets) + it.nets() }

func (b *builder) bySelector(sel *selector.Selector) *definition {
	key := selectorKey(sel)
	return b.definition(key, lookup{
		tried: func() int { return b.candidates(sel) },
		finds: func(most int) (int, int) { return b.foundBy(key, sel, most) },
		fill:  func(d *definition) { b.sets.selected.define(d, sel) },
	})
}

func (b *builder) byNamedPort(name string, protocol *uint8, sel *selector.Selector) *definition {
	key := namedPortKey(name, protocol, sel)
	return b.definition(key, lookup{
		tried: func() int { return b.candidates(sel) },
		finds: func(most int) (int, int) { return b.foundBy(key, sel, most) },
		fill:  func(d *definition) { b.sets.selected.defineNamedPort(d, sel) },
	})
}

// portsOf is for a definition by Service, of which the members are in what it costs to find them: in how many sets by port they are.
func (b *builder) portsOf(k kind, service model.ServiceKey) int {
	all := map[portKey]struct{}{}
	for _, s := range b.sets.services.backends.of[service] {
		for _, port := range s.portsFor(k) {
			all[port] = struct{}{}
		}
	}
	return len(all)
}

// none is for definitions of which the members are in what it costs to find them.
func none(int) (int, int) { return 0, 0 }

func (b *builder) byService(k kind, service model.ServiceKey) *definition {
	return b.definition(definitionKey{kind: k, service: service}, lookup{
		tried: func() int { return b.sets.services.backends.cost(k, service) },
		finds: func(int) (found, ports int) {
			if k.byPort() {
				ports = b.portsOf(k, service)
			}
			return 0, ports
		},
		fill: b.sets.services.define,
	})
}

func (b *builder) byNodes(sel *selector.Selector) *definition {
	return b.definition(definitionKey{kind: kindNodes, selector: sel.String()}, lookup{
		tried: func() int { return len(b.sets.nodes.nodes) },
		finds: none, fill: func(d *definition) { b.sets.nodes.define(d, sel) },
	})
}
