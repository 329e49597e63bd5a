package calc

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// The index of the cluster has every endpoint and network set, and the selectors that rules refer to.
type (
	clusterIndex = labelindex.Index[contents, findings]
	item         = labelindex.Item[contents, findings]
	group        = labelindex.Group[contents, findings]
	selection    = labelindex.Selection[contents, findings]
)

// setIndex holds the definitions rules refer to and the members of their sets, counted: a prefix is a member as long
// as one item contributes it.
type setIndex struct {
	labels      *clusterIndex // every endpoint and network set of the cluster
	definitions map[definitionKey]*definition
	setTable

	backends backends

	nodes   map[string]*model.Node
	ofNodes map[*definition]struct{} // of kindNodes

	repopulated map[*definition]struct{} // by port, or past a limit, and a set got its first or lost its last member
	unused      map[*definition]struct{} // lost a user since the last flush
	spending    spending
	port        portLimit
	owned       ownedAddrs
}

// setTable holds the address sets and which of them have changed. It knows nothing of who defines them.
type setTable struct {
	byID    map[model.SetID]*set
	touched map[*set]struct{} // new, gone or changed since the last flush
}

// set is one address set.
type set struct {
	id         model.SetID
	definition *definition // nil for reserved sets
	port       portKey
	members    members

	applied bool                  // a flush has returned it
	dropped bool                  // it does not exist any more
	earlier map[netip.Prefix]bool // of an applied set: whether prefixes that have changed since the last flush were members
}

func newSetIndex() *setIndex {
	x := &setIndex{
		labels:      labelindex.New[contents, findings](nil),
		definitions: map[definitionKey]*definition{},
		setTable:    setTable{byID: map[model.SetID]*set{}, touched: map[*set]struct{}{}},
		backends:    newBackends(MaxBackends),
		nodes:       map[string]*model.Node{},
		ofNodes:     map[*definition]struct{}{},
		repopulated: map[*definition]struct{}{},
		unused:      map[*definition]struct{}{},
		spending:    newSpending(),
		port:        portLimit{MaxPortNumbers, map[*definition]struct{}{}},
		owned:       ownedAddrs{patience: ownedPatience},
	}
	x.newSet(model.SetServiceAddrs)
	x.newSet(model.SetNodeAddrs)
	return x
}

func (x *setTable) newSet(id model.SetID) *set {
	s := &set{id: id}
	x.byID[id] = s
	x.touched[s] = struct{}{}
	return s
}

// setOf returns the definition's set for the port, which it creates if there is none.
func (x *setIndex) setOf(d *definition, port portKey) *set {
	s := d.sets[port]
	if s == nil {
		s = x.newSet(d.key.id(port))
		s.definition, s.port = d, port
		d.sets[port] = s
	}
	return s
}

func (x *setTable) drop(s *set) {
	s.dropped = true
	delete(x.byID, s.id)
	x.touched[s] = struct{}{}
}

// count adds delta to the number of contributors of a member.
func (x *setIndex) count(s *set, p netip.Prefix, delta int32) {
	was, now := s.members.add(p, delta)
	if (was == 0) == (now == 0) {
		return
	}
	if d := s.definition; d != nil && (d.key.kind.byPort() || s.port.past) {
		x.repopulated[d] = struct{}{}
	}
	if !s.applied {
		return
	}
	if s.earlier == nil {
		s.earlier = map[netip.Prefix]bool{}
		x.touched[s] = struct{}{}
	}
	if _, ok := s.earlier[p]; !ok {
		s.earlier[p] = was != 0
	}
}

// enter counts the item into the sets its group matches; exit counts it out, before it leaves the group.
func (x *setIndex) enter(it *item) { x.countItem(it, 1) }
func (x *setIndex) exit(it *item)  { x.countItem(it, -1) }

func (x *setIndex) countItem(it *item, delta int32) {
	x.spending.items += int(delta)
	for s := range it.Group().Selections() {
		x.addToSelection(s, it, delta)
	}
	if !x.owned.isEmpty() {
		for a := range it.Value.spokenFor() {
			x.owned.count(x, a, delta)
		}
	}
}

// propagate counts the items of groups whose matches have changed in or out.
func (x *setIndex) propagate(changed []labelindex.Match[contents, findings]) {
	for _, m := range changed {
		delta := int32(1)
		if !m.Now {
			delta = -1
		}
		for it := range m.Group.Items() {
			x.addToSelection(m.Selection, it, delta)
		}
	}
}

func (x *setIndex) addToSelection(s *selection, it *item, delta int32) {
	if s.Use.addrs != nil {
		x.addItem(s.Use.addrs, it, delta)
	}
	if len(s.Use.ports) == 0 {
		return
	}
	// addItem sees to all ports of a name at once, and adds nothing for a name that the item has not. The shorter list is
	// looked through: both may be very long.
	if len(s.Use.ports) < len(it.Group().Ports()) {
		for _, named := range s.Use.ports {
			addItems(x, named, it, delta)
		}
		return
	}
	for name := range it.Group().PortNames() {
		addItems(x, s.Use.ports[name], it, delta)
	}
}

func addItems(x *setIndex, named []*definition, it *item, delta int32) {
	for _, d := range named {
		x.addItem(d, it, delta)
	}
}

// addItem counts the item into (or out of) the sets of a definition by selector that it is a member of.
func (x *setIndex) addItem(d *definition, it *item, delta int32) {
	if d.numbers != nil {
		for port := range it.Group().PortsNamed(d.key.name) {
			if d.key.means(port) {
				d.numbers.count(it.Group(), keyOf(port), delta*it.Value.count())
			}
		}
		x.port.recounted[d] = struct{}{}
	}
	addToSets(x, d, it, delta)
}

// addToSets is addItem, but for the numbers of a definition that has very many, which know the item already.
func addToSets(x *setIndex, d *definition, it *item, delta int32) {
	if d.key.kind == kindSelector {
		s := d.sets[portKey{}]
		for p := range it.Value.prefixes() {
			x.count(s, p, delta)
		}
		return
	}
	for port := range it.Group().PortsNamed(d.key.name) {
		if d.key.means(port) {
			countAddrs(x, d, it, d.numbers.setFor(it.Group(), keyOf(port)), delta)
		}
	}
}

// changes returns what happened to the sets since the last flush, and starts over.
func (x *setTable) changes() map[model.SetID]*model.SetChange {
	var out map[model.SetID]*model.SetChange
	put := func(id model.SetID, c *model.SetChange) {
		if out == nil {
			out = map[model.SetID]*model.SetChange{}
		}
		out[id] = c
	}
	for s := range x.touched {
		switch {
		case s.dropped && s.applied:
			c := s.difference()
			c.Gone = true
			put(s.id, c)
		case s.dropped: // came and went unseen
		case !s.applied:
			s.applied = true
			put(s.id, &model.SetChange{Added: s.sorted()})
		default:
			if c := s.difference(); len(c.Added)+len(c.Removed) > 0 {
				put(s.id, c)
			}
		}
		s.earlier = nil
		s.members.shrink()
	}
	empty(&x.touched)
	return out
}

// difference is how the members have changed since the last flush.
func (s *set) difference() *model.SetChange {
	c := &model.SetChange{}
	for p, was := range s.earlier {
		now := s.members.has(p)
		switch {
		case now && !was:
			c.Added = append(c.Added, p)
		case was && !now:
			c.Removed = append(c.Removed, p)
		}
	}
	slices.SortFunc(c.Added, netip.Prefix.Compare)
	slices.SortFunc(c.Removed, netip.Prefix.Compare)
	return c
}

func (s *set) sorted() []netip.Prefix {
	if s.members.len() == 0 {
		return nil
	}
	all := slices.AppendSeq(make([]netip.Prefix, 0, s.members.len()), s.members.all())
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}
