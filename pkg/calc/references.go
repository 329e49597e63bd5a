package calc

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// definition notes that a rule uses a definition and returns it. fill finds its members if it does not exist yet. tried
// returns its cost without them. Nil: there is no room for it.
func (b *builder) definition(key definitionKey, tried func() int, fill func(*definition)) *definition {
	long := len(key.selector) / longSelector
	b.spent += 1 + long // a rule may name one port of very many, and there may be very many rules
	d := b.sets.definitions[key]
	if b.tooMany = b.tooMany || b.references >= b.mostReferences && !b.has(d); b.tooMany {
		b.over = true
	}
	if d == nil && !b.over {
		cost := 1 + costToRead(key.selector)
		if b.over = b.spent+cost > b.most; !b.over {
			cost += tried() * (1 + long)
			b.over = b.spent+cost > b.most
		}
		if !b.over {
			d = b.sets.define(key)
			fill(d)
			d.weight += cost + len(d.sets)*long
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
		b.spent += d.weight
	}
	b.uses[d] = struct{}{}
	return d
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

func (b *builder) bySelector(sel *selector.Selector) *definition {
	key := selectorKey(sel)
	return b.definition(key, func() int { return b.candidates(sel) },
		func(d *definition) { b.sets.selected.define(d, sel) })
}

func (b *builder) byNamedPort(name string, protocol *uint8, sel *selector.Selector) *definition {
	key := namedPortKey(name, protocol, sel)
	return b.definition(key, func() int { return b.candidates(sel) },
		func(d *definition) { b.sets.selected.defineNamedPort(d, sel) })
}

func (b *builder) byService(k kind, service model.ServiceKey) *definition {
	key := definitionKey{kind: k, service: service}
	return b.definition(key, func() int { return b.sets.services.backends.cost(k, service) }, b.sets.services.define)
}

func (b *builder) byNodes(sel *selector.Selector) *definition {
	key := definitionKey{kind: kindNodes, selector: sel.String()}
	return b.definition(key, func() int { return len(b.sets.nodes.nodes) },
		func(d *definition) { b.sets.nodes.define(d, sel) })
}
