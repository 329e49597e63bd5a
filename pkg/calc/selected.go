package calc

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/selector"
)

// The index of the cluster has every endpoint and network set, and the selectors that rules refer to.
type (
	clusterIndex = labelindex.Index[contents, findings]
	item         = labelindex.Item[contents, findings]
	group        = labelindex.Group[contents, findings]
	selection    = labelindex.Selection[contents, findings]
)

// selectedSets fills the sets of definitions by selector, named ports included: which items are members of which.
type selectedSets struct {
	labels  *clusterIndex // every endpoint and network set of the cluster
	sets    *setTable
	numbers *numberLimit
	found   *netsFound
}

func newSelectedSets(sets *setTable, r *room) *selectedSets {
	return &selectedSets{labels: labelindex.New[contents, findings](nil), sets: sets, numbers: newNumberLimit(sets), found: newNetsFound(r)}
}

// define finds the members of a new definition of everything that the selector selects.
func (x *selectedSets) define(d *definition, sel *selector.Selector) {
	d.selection = x.labels.Add(sel)
	d.selection.Use.addrs = d
	x.fill(d)
}

// defineNamedPort finds the members of a new definition of the endpoints that the selector selects and that expose the port.
func (x *selectedSets) defineNamedPort(d *definition, sel *selector.Selector) {
	d.selection = x.labels.Add(sel)
	use := &d.selection.Use
	put(&use.ports, d.key.name, append(use.ports[d.key.name], d))
	x.numbers.define(d)
	x.fill(d)
}

// fill counts in the members of a new definition.
func (x *selectedSets) fill(d *definition) {
	for gr := range d.selection.Groups() {
		sets := d.key.setsFor(gr)
		for it := range gr.Items() {
			x.addToSets(d, it, 1)
			d.weight += it.Value.weight(sets)
		}
	}
	d.ports = d.livePorts()
}

// undefine forgets a definition, and its selector if no other definition has it.
func (x *selectedSets) undefine(d *definition) {
	s := d.selection
	if s == nil {
		return
	}
	x.numbers.undefine(d)
	x.found.undefine(d)
	if s.Use.remove(d); s.Use.isEmpty() {
		x.labels.Remove(s)
	}
}

// countItem counts the item into (or out of) the sets that its group matches.
func (x *selectedSets) countItem(it *item, delta int32) {
	for s := range it.Group().Selections() {
		x.addToSelection(s, it, delta)
	}
}

// propagate counts the items of a group of which a match has changed in or out.
func (x *selectedSets) propagate(m labelindex.Match[contents, findings]) {
	delta := int32(1)
	if !m.Now {
		delta = -1
	}
	for it := range m.Group.Items() {
		x.addToSelection(m.Selection, it, delta)
	}
}

func (x *selectedSets) addToSelection(s *selection, it *item, delta int32) {
	if s.Use.addrs != nil {
		x.addToSets(s.Use.addrs, it, delta)
	}
	if len(s.Use.ports) == 0 {
		return
	}
	// addNamed sees to all ports of a name at once, and adds nothing for a name that the item has not. The shorter list is
	// looked through: both may be very long.
	if len(s.Use.ports) < len(it.Group().Ports()) {
		for _, named := range s.Use.ports {
			x.addNamed(named, it, delta)
		}
		return
	}
	for name := range it.Group().PortNames() {
		x.addNamed(s.Use.ports[name], it, delta)
	}
}

// addNamed counts the item into (or out of) the sets of definitions by named port, and among those who declare their numbers.
func (x *selectedSets) addNamed(named []*definition, it *item, delta int32) {
	for _, d := range named {
		x.numbers.count(d, it, delta)
		x.addToSets(d, it, delta)
	}
}

// addToSets counts the item into (or out of) the sets of a definition that it is a member of.
func (x *selectedSets) addToSets(d *definition, it *item, delta int32) {
	if d.key.kind == kindSelector {
		isIn := x.found.note(d, it, delta)
		if isIn {
			x.countAll(d, portKey{}, it.Value.prefixes(), delta)
		}
		if !isIn || it.Value.isOut() {
			x.countAll(d, leftOut, slices.Values(it.Value.covering()), delta)
		}
		return
	}
	for port := range it.Group().PortsNamed(d.key.name) {
		if d.key.means(port) {
			x.sets.countAddrs(d, it, d.numbers.setFor(it.Group(), keyOf(port)), delta)
		}
	}
}

// leftOut is the key of the set of a definition by selector that covers the network sets that are left out of it.
var leftOut = portKey{past: true}

// countAll counts prefixes into (or out of) a set of a definition.
func (x *selectedSets) countAll(d *definition, key portKey, prefixes iter.Seq[netip.Prefix], delta int32) {
	s := x.sets.setOf(d, key)
	for p := range prefixes {
		x.sets.count(s, p, delta)
	}
}

// exchange counts one network set in a definition for another of the same group. out and in are where their lists differ.
func (x *selectedSets) exchange(d *definition, was, now *item, out, in []netip.Prefix) {
	namespace, _ := namespaceOf(now.Group())
	if n := len(in) - len(out); !d.has(namespace, was) || now.Value.nets() == 0 || was.Value.extra.held != now.Value.extra.held || !x.found.isRoom(d, namespace, n) {
		x.addToSets(d, was, -1)
		x.addToSets(d, now, 1)
		return
	}
	of := d.of(namespace)
	delete(of.items, was)
	of.items[now] = struct{}{}
	x.found.add(d, namespace, len(in)-len(out))
	x.countAll(d, portKey{}, masked(in), 1)
	x.countAll(d, portKey{}, masked(out), -1)
	if now.Value.isOut() {
		x.countAll(d, leftOut, slices.Values(now.Value.covering()), 1)
	}
	if was.Value.isOut() {
		x.countAll(d, leftOut, slices.Values(was.Value.covering()), -1)
	}
}
