package calc

import (
	"encoding/binary"
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// owners knows whose the addresses of terminating endpoints are. Such an endpoint has an address as long as no other has
// it that is not terminating; several terminating ones have it together (semantics §13).
//
// Terminating endpoints are few, and most addresses are one endpoint's, so what is kept of all addresses is a number.
type owners struct {
	seed  maphash.Seed
	known map[addrKey]uint8 // endpoints by address, terminating or not; 255 stays: it may be more
	most  [2]int            // of known and terminating, see shrink

	terminating map[netip.Addr]*tenure
	unsettled   map[netip.Addr]struct{} // of terminating: came, or its number of others has changed
}

// addrKey is an IPv4 address, or the hash of another: it may stand for several.
type addrKey [4]byte

// tenure is one address of terminating endpoints.
type tenure struct {
	ids    []model.EndpointID // which have it
	others int                // endpoints that have it and are not terminating; -1: to be counted
	lost   bool               // there were such others when it was settled last
}

func newOwners() *owners {
	return &owners{
		seed:        maphash.MakeSeed(),
		known:       map[addrKey]uint8{},
		terminating: map[netip.Addr]*tenure{},
		unsettled:   map[netip.Addr]struct{}{},
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

// leave notes that an endpoint has these addresses no more.
func (o *owners) leave(id model.EndpointID, terminating bool, addrs iter.Seq[netip.Addr]) {
	for a := range addrs {
		switch k := o.key(a); o.known[k] {
		case 255:
		case 1:
			delete(o.known, k)
		default:
			o.known[k]--
		}
		t := o.terminating[a]
		switch {
		case t == nil:
		case !terminating:
			o.add(a, t, -1)
		default:
			t.ids = slices.DeleteFunc(t.ids, func(other model.EndpointID) bool { return other == id })
			if len(t.ids) == 0 {
				delete(o.terminating, a)
				delete(o.unsettled, a)
			}
		}
	}
}

// join notes that an endpoint has these addresses.
func (o *owners) join(id model.EndpointID, terminating bool, addrs iter.Seq[netip.Addr]) {
	for a := range addrs {
		if k := o.key(a); o.known[k] != 255 {
			o.known[k]++
		}
		t := o.terminating[a]
		switch {
		case terminating && t == nil:
			o.terminating[a] = &tenure{ids: []model.EndpointID{id}, others: -1}
			o.unsettled[a] = struct{}{}
		case terminating:
			t.ids = append(t.ids, id)
		case t != nil:
			o.add(a, t, 1)
		}
	}
}

func (o *owners) add(a netip.Addr, t *tenure, n int) {
	if t.others >= 0 {
		t.others += n
		o.unsettled[a] = struct{}{}
	}
}

// settle counts what is to be counted and returns the terminating endpoints that have an address more or less than when
// it was called last. others yields the addresses of all endpoints that are not terminating; it is rarely asked.
func (o *owners) settle(others func(yield func(netip.Addr))) map[model.EndpointID]struct{} {
	shared := map[netip.Addr]*tenure{}
	for a := range o.unsettled {
		t := o.terminating[a]
		if t.others >= 0 {
			continue
		}
		t.others = 0
		if int(o.known[o.key(a)]) > len(t.ids) || o.known[o.key(a)] == 255 {
			shared[a] = t
		}
	}
	if len(shared) > 0 {
		others(func(a netip.Addr) {
			if t := shared[a]; t != nil {
				t.others++
			}
		})
	}
	var changed map[model.EndpointID]struct{}
	for a := range o.unsettled {
		t := o.terminating[a]
		if lost := t.others > 0; lost != t.lost {
			t.lost = lost
			for _, id := range t.ids {
				put(&changed, id, struct{}{})
			}
		}
	}
	empty(&o.unsettled)
	return changed
}

func (o *owners) shrink() {
	shrink(&o.known, &o.most[0])
	shrink(&o.terminating, &o.most[1])
}

// own returns those of a terminating endpoint's addresses that it has. The list may be shared.
func (o *owners) own(addrs []netip.Addr) []netip.Addr {
	isLost := func(a netip.Addr) bool { return o.terminating[a].lost }
	if !slices.ContainsFunc(addrs, isLost) {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), isLost)
}
