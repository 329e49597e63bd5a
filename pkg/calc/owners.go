package calc

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/mapsize"
	"github.com/margay-project/margay/pkg/model"
)

// owners decides whose an address is (D-19): this is the one place. Endpoints claim addresses; of the claims at most one
// makes its endpoint the owner, and only the owner's labels and ports stand for the address:
//
//  1. the claim of an endpoint of this node to whose interface the node routes the address, if routes are known;
//  2. otherwise that of an endpoint of another node, one that is not terminating before one that is;
//  3. of several that are equal so far, the oldest. If there are several of these, none.
//
// An address of a node, or a cluster address of a Service, has no owner. No name decides, and no order of arrival.
//
// Most addresses are claimed once, by an endpoint of another node, and all that is kept of those is a number.
type owners struct {
	seed  maphash.Seed
	known map[addrKey]uint8 // claims by address; 255 stays: there may be more
	most  [2]int            // of known and contests, see shrink

	contests  map[netip.Addr]*contest
	undecided map[netip.Addr]struct{} // of contests: to be decided
	routes    map[netip.Addr]string   // interfaces by the address that the node routes to them; nil: not known
	reserved  members                 // addresses that no endpoint can own, counted

	interfaces interfaces
}

// addrKey is an IPv4 address, or the hash of another: it may stand for several.
type addrKey [4]byte

// contest is an address with more claims than a single one from another node.
type contest struct {
	claims  []claim
	counted bool // claims are all there are
	owner   model.EndpointID
}

// claim is one endpoint that says an address is its own.
type claim struct {
	id          model.EndpointID
	created     uint32
	terminating bool
	local       bool   // of this node
	iface       string // of a local one; it may be another's
}

func newOwners() *owners {
	return &owners{
		seed:      maphash.MakeSeed(),
		known:     map[addrKey]uint8{},
		contests:  map[netip.Addr]*contest{},
		undecided: map[netip.Addr]struct{}{},

		interfaces: interfaces{},
	}
}

func (o *owners) key(a netip.Addr) addrKey {
	if a.Is4() {
		return a.As4()
	}
	var k addrKey
	binary.LittleEndian.PutUint32(k[:], uint32(maphash.Comparable(o.seed, a)))
	return k
}

// leave notes that an endpoint claims an address no more.
func (o *owners) leave(id model.EndpointID, a netip.Addr) {
	k := o.key(a)
	switch o.known[k] {
	case 255:
	case 1:
		delete(o.known, k)
	default:
		o.known[k]--
	}
	t := o.contests[a]
	if t == nil {
		return
	}
	t.claims = slices.DeleteFunc(t.claims, func(c claim) bool { return c.id == id })
	if o.undecided[a] = struct{}{}; len(t.claims) == 0 && t.counted {
		o.forget(a)
	}
}

// join notes that an endpoint claims an address, and reports whether that is contested.
func (o *owners) join(c claim, a netip.Addr) bool {
	k := o.key(a)
	if o.known[k] != 255 {
		o.known[k]++
	}
	t := o.contests[a]
	if t == nil {
		if !c.local && !c.terminating && o.known[k] == 1 && !o.isReserved(a) {
			return false
		}
		t = &contest{counted: o.known[k] == 1}
		o.contests[a] = t
	}
	t.claims = append(t.claims, c)
	o.undecided[a] = struct{}{}
	return true
}

// reconsider has an address decided again, if it is contested.
func (o *owners) reconsider(a netip.Addr) {
	if o.contests[a] != nil {
		o.undecided[a] = struct{}{}
	}
}

// reserve counts an address that no endpoint can own in or out.
func (o *owners) reserve(a netip.Addr, delta int32) {
	p, ok := hostPrefix(a)
	if !ok {
		return
	}
	if was, now := o.reserved.add(p, delta); (was == 0) == (now == 0) {
		return
	}
	if o.contests[a] == nil && o.known[o.key(a)] > 0 {
		o.contests[a] = &contest{}
	}
	o.reconsider(a)
}

func (o *owners) isReserved(a netip.Addr) bool {
	p, ok := hostPrefix(a)
	return ok && o.reserved.has(p)
}

// follow replaces the routes; nil: they are not known.
func (o *owners) follow(routes map[netip.Addr]string) {
	was := o.routes
	o.routes = routes
	for a := range o.contests {
		before, had := was[a]
		if now, has := routes[a]; now != before || has != had || (was == nil) != (routes == nil) {
			o.undecided[a] = struct{}{}
		}
	}
}

// decideAll decides all undecided addresses and returns the endpoints that have gained or lost an address. everyone yields
// all claims; it is rarely called. holds reports whether an endpoint has an address so far.
func (o *owners) decideAll(everyone func(yield func(claim, netip.Addr)),
	holds func(model.EndpointID, netip.Addr) bool) map[model.EndpointID]struct{} {
	uncounted := map[netip.Addr]*contest{}
	for a := range o.undecided {
		if t := o.contests[a]; !t.counted {
			t.claims, t.counted = nil, true
			uncounted[a] = t
		}
	}
	if len(uncounted) > 0 {
		everyone(func(c claim, a netip.Addr) {
			if t := uncounted[a]; t != nil {
				t.claims = append(t.claims, c)
			}
		})
	}
	var changed map[model.EndpointID]struct{}
	for a := range o.undecided {
		t := o.contests[a]
		t.owner = o.decide(a, t)
		for _, c := range t.claims {
			if holds(c.id, a) != (c.id == t.owner) {
				put(&changed, c.id, struct{}{})
			}
		}
		if len(t.claims) == 0 || len(t.claims) == 1 && t.claims[0].plain() && t.owner == t.claims[0].id {
			delete(o.contests, a)
		}
	}
	empty(&o.undecided)
	return changed
}

// plain is a claim that has the address if it is the only one.
func (c claim) plain() bool { return !c.local && !c.terminating }

// decide returns the owner of an address; the zero id: no endpoint.
func (o *owners) decide(a netip.Addr, t *contest) model.EndpointID {
	if o.isReserved(a) {
		return model.EndpointID{}
	}
	var best claim
	var several bool
	for _, c := range t.claims {
		if o.weight(c, a) == 0 {
			continue
		}
		if best == (claim{}) {
			best = c
			continue
		}
		switch order := cmp.Or(cmp.Compare(o.weight(best, a), o.weight(c, a)), cmp.Compare(c.created, best.created)); {
		case order == 0:
			several = true
		case order < 0:
			best, several = c, false
		}
	}
	if several {
		return model.EndpointID{}
	}
	return best.id
}

// weight orders claims; 0: it makes no owner.
func (o *owners) weight(c claim, a netip.Addr) int {
	switch {
	case c.local && o.routes != nil && o.routed(c, a):
		return 3
	case c.local && o.routes != nil:
		return 0
	case c.terminating:
		return 1
	}
	return 2
}

// routed reports whether the node routes the address to the claimant's interface.
func (o *owners) routed(c claim, a netip.Addr) bool {
	iface, ok := o.routes[a]
	return ok && iface == c.iface && o.interfaces.holder(iface) == c.id
}

// own returns those of the addresses an endpoint claims that it has. The list may be shared.
func (o *owners) own(id model.EndpointID, claims []netip.Addr) []netip.Addr {
	isLost := func(a netip.Addr) bool {
		t := o.contests[a]
		return t != nil && t.owner != id
	}
	if !slices.ContainsFunc(claims, isLost) {
		return claims
	}
	return slices.DeleteFunc(slices.Clone(claims), isLost)
}

func (o *owners) forget(a netip.Addr) {
	delete(o.contests, a)
	delete(o.undecided, a)
}

func (o *owners) shrink() {
	mapsize.Shrink(&o.known, &o.most[0])
	mapsize.Shrink(&o.contests, &o.most[1])
}
