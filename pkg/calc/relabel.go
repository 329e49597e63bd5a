package calc

import (
	"cmp"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// Very many pods may inherit the labels of one ServiceAccount or Namespace, and each may be found by thousands of selectors. So when these labels
// change, the pods get the new ones in parts, some with each flush. A pod has all of the labels of before, as what policies apply to and as what
// rules find, until its turn comes, and then all of the new ones. That is what other pods and selectors see when pods are replaced one by one.
// A pod that comes or changes meanwhile has the new ones at once.

// relabelTable has the labels that endpoints and network sets inherit.
type relabelTable struct {
	endpoints   *endpointTable
	policies    *policyTable
	networkSets *networkSetTable

	atOnce     int            // of turns; 0: mostAtOnce
	begun      []*relabelling // since the last flush
	relabelled []*relabelling // the one whose turn it is first
	moves      map[move][]labelindex.Match[contents, findings]
}

// move is from one group to another, and what that changes is worked out once for all items in one flush.
type move struct{ from, to *group }

// relabelling is what inherits labels of before from one parent.
type relabelling struct {
	parent string
	heirs  []heir // in order
}

// heir is an item with its place in the order: endpoints of this node come first, then others, by the first address that an endpoint has, and
// network sets are the last, by their first prefix.
type heir struct {
	item *item
	rank uint8
	addr netip.Addr
}

func heirOf(it *item) heir {
	h := heir{item: it, rank: 1}
	switch {
	case it.Value.nets() > 0:
		h.rank, h.addr = 2, it.Value.extra.nets.first().Addr()
		return h
	case it.Value.iface() != "":
		h.rank = 0
	}
	for a := range it.Value.addrs() {
		h.addr = a
		break
	}
	return h
}

func (h heir) compare(o heir) int {
	return cmp.Or(cmp.Compare(h.rank, o.rank), h.addr.Compare(o.addr))
}

// turnsInPart is how many relabellings have their turn in one part, if they are large.
const turnsInPart = 8

// inParts reports whether endpoints are to get labels in parts. Before the first flush that is in force, and in the graph of a tool, they get them
// at once.
func (t *relabelTable) inParts() bool {
	return t.networkSets.inSync && t.networkSets.most > 0 && t.endpoints.node != ""
}

// relabel gives a parent its labels, nil if it is gone.
func (t *relabelTable) relabel(name string, labels map[string]string) {
	cluster, local := t.policies.sets.selected.labels, t.policies.local
	if !t.inParts() {
		cluster.SetParent(name, labels, t.policies.sets.propagate)
		local.labels.SetParent(name, labels, t.rematched)
		return
	}
	r := &relabelling{parent: name}
	for gr := range cluster.Supersede(name, labels) {
		for it := range gr.Items() {
			r.heirs = append(r.heirs, heirOf(it))
		}
	}
	local.labels.Supersede(name, labels)
	if len(r.heirs) == 0 {
		return
	}
	slices.SortFunc(r.heirs, heir.compare)
	t.begun = append(t.begun, r)
}

// advance makes one part of the changes of labels that are under way, of each in its turn. New ones come first: most are small.
func (t *relabelTable) advance() {
	slices.SortFunc(t.begun, func(a, b *relabelling) int { return strings.Compare(a.parent, b.parent) })
	t.relabelled, t.begun = append(t.begun, t.relabelled...), nil
	most := cmp.Or(t.networkSets.most, math.MaxInt)
	turn := max(1, most/turnsInPart)
	for left := most; left > 0 && len(t.relabelled) > 0; {
		r := t.relabelled[0]
		t.relabelled = t.relabelled[1:]
		left -= max(1, t.step(r, min(turn, left)))
		if len(r.heirs) > 0 {
			t.relabelled = append(t.relabelled, r)
		}
	}
	empty(&t.moves)
}

// step goes on with one by about so much, and returns how much it was.
func (t *relabelTable) step(r *relabelling, most int) (done int) {
	for ; done < most && len(r.heirs) > 0; done++ {
		it := r.heirs[0].item
		r.heirs = r.heirs[1:]
		done += t.renew(it)
		if ep := t.enforcedAs(it); ep != nil {
			t.renewLocal(ep.id())
		}
	}
	return done
}

// enforcedAs is the endpoint of an item, if it may be enforced on this node. Of several on one interface one is.
func (t *relabelTable) enforcedAs(it *item) *endpoint {
	if it.Value.iface() == "" {
		return nil
	}
	if ep := t.endpoints.enforced(t.endpoints.owners.interfaces.holder(it.Value.iface())); ep != nil && &ep.item == it {
		return ep
	}
	return nil
}

// triesOfOne is how many selectors are tried in the time in which an address joins a set.
const triesOfOne = 8

// renew has an item inherit the present labels, and returns how much work that was: in how many sets addresses were counted.
func (t *relabelTable) renew(it *item) (work int) {
	if !it.IsIn() || !it.Group().IsStale() {
		return 0 // it has gone, or has changed by itself
	}
	sets, labels := t.policies.sets, t.policies.sets.selected.labels
	counted, tried := sets.counted, labels.Tried()
	was, _ := labels.Renew(it)
	by := move{was, it.Group()}
	changed, known := t.moves[by]
	if !known {
		changed = labels.Between(was, it.Group())
		put(&t.moves, by, changed)
	}
	for _, m := range changed {
		delta := int32(1)
		if !m.Now {
			delta = -1
		}
		sets.selected.addToSelection(m.Selection, it, delta)
		sets.relieve()
	}
	return sets.counted - counted + (labels.Tried()-tried)/triesOfOne
}

// relabelling are the namespaces in which some inherit labels of before, "" for those of cluster-wide objects.
func (t *relabelTable) relabelling() map[string]bool {
	var namespaces map[string]bool
	for _, r := range t.relabelled {
		namespace, ok := model.NamespaceOfProfile(r.parent)
		if !ok {
			namespace, _, _ = model.ServiceAccountOfProfile(r.parent)
		}
		put(&namespaces, namespace, true)
	}
	return namespaces
}

// postpone returns the policies that take effect now, and those that wait until all labels of their namespace are the present ones, and its pods and
// network sets have had their turn: their author has written them for these.
func (t *relabelTable) postpone(policies map[model.PolicyKey]*model.Policy, namespaces map[string]bool) (now, later map[model.PolicyKey]*model.Policy) {
	maps.Copy(namespaces, t.relabelling())
	if len(namespaces) == 0 {
		return policies, nil
	}
	for key, p := range policies {
		if namespaces[key.Namespace] {
			put(&later, key, p)
		} else {
			put(&now, key, p)
		}
	}
	return now, later
}

// rematched notes groups of the node's index that other selectors match.
func (t *relabelTable) rematched(changed []labelindex.Match[model.EndpointID, subjects]) {
	for _, m := range changed {
		t.policies.dirty.groups[m.Group] = struct{}{}
		t.policies.dirty.selections[m.Selection] = struct{}{}
	}
}

// renewLocal has an endpoint of the node's index inherit the present labels.
func (t *relabelTable) renewLocal(id model.EndpointID) {
	ep := t.policies.local.endpoints[id]
	if ep == nil || !ep.Group().IsStale() {
		return
	}
	was, first := t.policies.local.labels.Renew(&ep.localItem)
	if first {
		t.policies.regroup(ep.Group())
	}
	if was.IsEmpty() {
		t.policies.regroup(was)
	}
	t.policies.dirty.endpoints[id] = struct{}{}
}
