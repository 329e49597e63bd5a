package calc

import "github.com/margay-project/margay/pkg/model"

// AddressEntries is how many entries each map of addresses of a node has room for. Those of pods, nodes and CIDR lists need room there whatever
// tenants write. So the prefixes of network sets that rules find, the backends of Services that rules refer to, and external addresses of
// Services are bounded for all namespaces together. Who comes first has the room, and keeps it. Some of it is reserved for each namespace.
const AddressEntries = 1 << 20

const (
	commonPart  = 4   // of the entries, is for prefixes beyond those that are reserved
	assuredPart = 8   // is reserved for all namespaces together, and
	eachPart    = 256 // of that for each, at most
)

// room counts the prefixes that objects of namespaces have in sets, each object's once.
type room struct {
	common, assured, each int // the limits above
	by                    map[string]share
	all                   share
	freed                 bool // some of it, or of netsFound, since admit; or somebody has come who has room of netsFound
	short                 bool // something was left out, at some time

	services map[model.ServiceKey]struct{} // whose external addresses are left out for want of room
}

// share is what the objects of one namespace have, or those of all.
type share struct{ common, assured int }

func newRoom() *room {
	r := &room{by: map[string]share{}, services: map[model.ServiceKey]struct{}{}}
	r.fit(AddressEntries)
	return r
}

// fit bounds the room for maps of so many entries.
func (r *room) fit(entries int) {
	r.common, r.assured, r.each = entries/commonPart, entries/assuredPart, entries/eachPart
}

// split is how much of n more prefixes of a namespace would be assured, and how much common.
func (r *room) split(namespace string, n int) share {
	assured := min(n, r.each-r.by[namespace].assured, r.assured-r.all.assured)
	assured = max(0, assured)
	return share{common: n - assured, assured: assured}
}

// has reports whether there is room for n prefixes more of a namespace. Cluster-wide objects are not bounded.
func (r *room) has(namespace string, n int) bool {
	return namespace == "" || n <= 0 || r.all.common+r.split(namespace, n).common <= r.common
}

// spend notes that objects of a namespace have n prefixes more, or so many fewer.
func (r *room) spend(namespace string, n int) {
	if namespace == "" || n == 0 {
		return
	}
	of, more := r.by[namespace], r.split(namespace, n)
	if n < 0 {
		common := min(-n, of.common)
		more = share{common: -common, assured: n + common}
		r.freed = true
	}
	of.common, of.assured = of.common+more.common, of.assured+more.assured
	r.all.common, r.all.assured = r.all.common+more.common, r.all.assured+more.assured
	if r.by[namespace] = of; of == (share{}) {
		delete(r.by, namespace)
	}
}

// held is a network set in sets: its prefixes are counted once, whether it is one item or another.
type held struct {
	namespace string
	nets      int
	sets      int // that have it
}

// hold notes that one set more has an item, and drop that one has it no more.
func (r *room) hold(it *item) {
	h := it.Value.extra.held
	if h.sets == 0 {
		h.nets = it.Value.nets()
		r.spend(h.namespace, h.nets)
	}
	h.sets++
}

func (r *room) drop(it *item) {
	h := it.Value.extra.held
	if h.sets--; h.sets == 0 {
		r.spend(h.namespace, -h.nets)
		h.nets = 0
	}
}

// hasFor reports whether there is room for an item in a set.
func (r *room) hasFor(it *item) bool {
	h := it.Value.extra.held
	return h.sets > 0 || r.has(h.namespace, it.Value.nets())
}

// succeed returns how an item is held that replaces another of the same network set, which may be nil: both together, if there is room.
func (r *room) succeed(was *networkSet, namespace string, nets int) *held {
	if was == nil || was.Value.extra.held.sets == 0 {
		return &held{namespace: namespace}
	}
	h := was.Value.extra.held
	if !r.has(namespace, nets-h.nets) {
		return &held{namespace: namespace}
	}
	r.spend(namespace, nets-h.nets)
	h.nets = nets
	return h
}
