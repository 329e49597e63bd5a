package calc

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// MaxPortNumbers is how many combinations of protocol and number the pods of one namespace may give a name of ports, as far as
// a rule means them. A rule that names a port has a set for each, and the rule may be of another tenant.
const MaxPortNumbers = 128

// numbers knows which numbers of each namespace a definition by named port has sets for: the lowest ones. The pods that
// give it others are in one set for each protocol. It is kept of definitions that have many numbers only; what counts
// depends on the present pods alone.
type numbers struct {
	most    int
	of      map[string]*portNumbers // by namespace
	changed map[string]struct{}     // namespaces whose numbers have come or gone since the last decision
	crowded map[string]struct{}     // namespaces with numbers past the limit
}

// portNumbers are those of one namespace.
type portNumbers struct {
	declared map[portKey]int32 // by how many addresses
	past     map[portKey]bool  // those without sets of their own
}

// namespaceOf is the namespace of pods. Not ok: an endpoint that has none, for which there is no limit. Tenants have no such.
func namespaceOf(gr *group) (namespace string, ok bool) {
	for name := range gr.Parents() {
		if namespace, ok = model.NamespaceOfProfile(name); ok {
			return namespace, true
		}
	}
	return "", false
}

func keyOf(p model.NamedPort) portKey { return portKey{protocol: p.Protocol, port: p.Port} }

// means reports whether a declared port is one of the definition.
func (k definitionKey) means(p model.NamedPort) bool {
	return p.Name == k.name && model.HasPorts(p.Protocol) && (k.protocol == 0 || k.protocol == p.Protocol)
}

// setFor returns the key of the set that holds a group's addresses for a declared port.
func (n *numbers) setFor(gr *group, k portKey) portKey {
	if n == nil {
		return k
	}
	if namespace, ok := namespaceOf(gr); ok && n.of[namespace] != nil && n.of[namespace].past[k] {
		return portKey{protocol: k.protocol, past: true}
	}
	return k
}

// count notes that addresses of a group declare a port, or do so no more.
func (n *numbers) count(gr *group, k portKey, addrs int32) {
	namespace, ok := namespaceOf(gr)
	if !ok || addrs == 0 {
		return
	}
	of := n.of[namespace]
	if of == nil {
		of = &portNumbers{declared: map[portKey]int32{}}
		n.of[namespace] = of
	}
	if was, now := addTo(&of.declared, k, addrs); (was == 0) != (now == 0) {
		n.changed[namespace] = struct{}{}
	}
}

// decide works out again which numbers of a namespace are past the limit, and returns those that are declared and are so now
// and were not, or the other way round.
func (n *numbers) decide(namespace string) (moved map[portKey]bool) {
	of, past := n.of[namespace], map[portKey]bool{}
	if len(of.declared) > n.most {
		for _, k := range slices.SortedFunc(maps.Keys(of.declared), portKey.compare)[n.most:] {
			past[k] = true
		}
	}
	moved = map[portKey]bool{}
	for k := range of.declared {
		if past[k] != of.past[k] {
			moved[k] = true
		}
	}
	of.past = past
	delete(n.changed, namespace)
	delete(n.crowded, namespace)
	switch {
	case len(past) > 0:
		n.crowded[namespace] = struct{}{}
	case len(of.declared) == 0:
		delete(n.of, namespace)
	}
	return moved
}

// newNumbers counts the numbers of a definition.
func newNumbers(d *definition, most int) *numbers {
	n := &numbers{most: most, of: map[string]*portNumbers{}, changed: map[string]struct{}{}, crowded: map[string]struct{}{}}
	for gr := range d.selection.Groups() {
		for port := range gr.PortsNamed(d.key.name) {
			if !d.key.means(port) {
				continue
			}
			for it := range gr.Items() {
				n.count(gr, keyOf(port), it.Value.count())
			}
		}
	}
	return n
}

// numberLimit bounds the numbers of all definitions by named port.
type numberLimit struct {
	most      int                      // MaxPortNumbers
	recounted map[*definition]struct{} // have numbers that may have changed since the last flush
	sets      *setTable
}

func newNumberLimit(sets *setTable) *numberLimit {
	return &numberLimit{most: MaxPortNumbers, recounted: map[*definition]struct{}{}, sets: sets}
}

// define decides which numbers of a new definition have sets, before its sets have members.
func (l *numberLimit) define(d *definition) {
	declared := map[portKey]bool{}
	for gr := range d.selection.Groups() {
		for port := range gr.PortsNamed(d.key.name) {
			if d.key.means(port) {
				declared[keyOf(port)] = true
			}
		}
	}
	if len(declared) <= l.most {
		return
	}
	d.numbers = newNumbers(d, l.most)
	for namespace := range d.numbers.of {
		d.numbers.decide(namespace)
	}
}

func (l *numberLimit) undefine(d *definition) { delete(l.recounted, d) }

// count counts the numbers that an item declares for a definition in (or out), if they are counted.
func (l *numberLimit) count(d *definition, it *item, delta int32) {
	if d.numbers == nil {
		return
	}
	for port := range it.Group().PortsNamed(d.key.name) {
		if d.key.means(port) {
			d.numbers.count(it.Group(), keyOf(port), delta*it.Value.count())
		}
	}
	l.recounted[d] = struct{}{}
}

// reconcile moves the addresses of pods whose numbers have got past the limit of their namespace, or are so no more. Only
// repopulated definitions may have got too many numbers.
func (l *numberLimit) reconcile(repopulated map[*definition]struct{}, labels *clusterIndex) {
	for d := range repopulated {
		if d.key.kind == kindNamedPort && d.numbers == nil && len(d.sets) > l.most {
			d.numbers = newNumbers(d, l.most)
			l.recounted[d] = struct{}{}
		}
	}
	for d := range l.recounted {
		for namespace := range d.numbers.changed {
			l.move(labels, d, namespace, d.numbers.decide(namespace))
		}
	}
	empty(&l.recounted)
}

// relax stops counting the numbers of a definition that has few, given how many sets it has.
func (l *numberLimit) relax(d *definition, sets int) {
	if d.numbers != nil && sets <= l.most/2 && len(d.numbers.crowded) == 0 {
		d.numbers = nil
	}
}

// move moves the addresses of a namespace's pods that declare one of the numbers to the set where they belong now.
func (l *numberLimit) move(labels *clusterIndex, d *definition, namespace string, moved map[portKey]bool) {
	if len(moved) == 0 {
		return
	}
	for gr := range labels.Children(model.NamespaceProfile(namespace)) {
		if of, _ := namespaceOf(gr); of != namespace || !isSelected(gr, d.selection) {
			continue
		}
		for port := range gr.PortsNamed(d.key.name) {
			k := keyOf(port)
			if !d.key.means(port) || !moved[k] {
				continue
			}
			from, to := k, d.numbers.setFor(gr, k)
			if to == k {
				from = portKey{protocol: k.protocol, past: true}
			}
			for it := range gr.Items() {
				l.sets.countAddrs(d, it, from, -1)
				l.sets.countAddrs(d, it, to, 1)
			}
		}
	}
}

func isSelected(gr *group, by *selection) bool {
	for s := range gr.Selections() {
		if s == by {
			return true
		}
	}
	return false
}

// crowdedNames are the names of ports that rules of this node refer to, with the namespaces that give them too many numbers.
func crowdedNames(definitions map[definitionKey]*definition) map[string]map[string]struct{} {
	var names map[string]map[string]struct{}
	for _, d := range definitions {
		if d.numbers == nil {
			continue
		}
		for namespace := range d.numbers.crowded {
			if names[d.key.name] == nil {
				put(&names, d.key.name, map[string]struct{}{})
			}
			names[d.key.name][namespace] = struct{}{}
		}
	}
	return names
}
