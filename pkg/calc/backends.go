package calc

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// MaxBackends is the number of backends that the EndpointSlices of a namespace have together: an object may have 40,000 addresses
// and 20,000 ports, and each address is a backend with each port. The smaller objects count as they are. Of the others the
// addresses count, those of the shorter lists, again so many in all; of the rest the prefixes that cover the lists. A rule that
// refers to the Service fails closed for these (withPast).
const MaxBackends = 1 << 17

// backends has the EndpointSlices of the cluster, and how each counts. That depends on the present objects alone.
type backends struct {
	slices map[model.EndpointSliceID]*backendSlice
	of     map[model.ServiceKey]map[model.EndpointSliceID]*backendSlice
	pairs  allotment // of address and port
	addrs  allotment
}

// backendSlice is an EndpointSlice. It is replaced when it counts otherwise than before.
type backendSlice struct {
	*model.EndpointSlice
	standing standing
	cover    []netip.Prefix // if it is covered
}

// standing is how an EndpointSlice counts.
type standing uint8

const (
	inFull  standing = iota // each address with each port
	byAddr                  // its addresses alone
	covered                 // the smallest prefixes that have its addresses in them
)

func newBackends(most int) backends {
	return backends{slices: map[model.EndpointSliceID]*backendSlice{}, of: map[model.ServiceKey]map[model.EndpointSliceID]*backendSlice{},
		pairs: newAllotment(most), addrs: newAllotment(most)}
}

// note records the size of an EndpointSlice, nil if it is gone.
func (b *backends) note(id model.EndpointSliceID, now *model.EndpointSlice) {
	pairs, addrs := 0, 0
	if now != nil {
		pairs, addrs = pairsOf(now), len(now.Addrs)
	}
	b.pairs.note(id.Namespace, id.Name, pairs)
	b.addrs.note(id.Namespace, id.Name, addrs)
}

func pairsOf(s *model.EndpointSlice) int { return len(s.Addrs) * max(1, len(s.Ports)) }

// decide works out how the EndpointSlices of a namespace count, and returns at least those that count otherwise than before.
func (b *backends) decide(namespace string) []model.EndpointSliceID {
	var ids []model.EndpointSliceID
	for _, name := range append(b.pairs.decide(namespace), b.addrs.decide(namespace)...) {
		ids = append(ids, model.EndpointSliceID{Namespace: namespace, Name: name})
	}
	return ids
}

// as returns an EndpointSlice as it counts; of nil, nil.
func (b *backends) as(id model.EndpointSliceID, now *model.EndpointSlice) *backendSlice {
	switch {
	case now == nil:
		return nil
	case !b.pairs.isOut(id.Namespace, id.Name):
		return &backendSlice{EndpointSlice: now}
	case !b.addrs.isOut(id.Namespace, id.Name):
		return &backendSlice{EndpointSlice: now, standing: byAddr}
	}
	return &backendSlice{EndpointSlice: now, standing: covered, cover: covering(now.Addrs)}
}

// put replaces an EndpointSlice; nil removes it.
func (b *backends) put(id model.EndpointSliceID, now *backendSlice) {
	if was := b.slices[id]; was != nil {
		delete(b.slices, id)
		delete(b.of[was.Service], id)
		if len(b.of[was.Service]) == 0 {
			delete(b.of, was.Service)
		}
	}
	if now == nil {
		return
	}
	b.slices[id] = now
	ids := b.of[now.Service]
	if ids == nil {
		ids = map[model.EndpointSliceID]*backendSlice{}
		b.of[now.Service] = ids
	}
	ids[id] = now
}

// cost is about how many members the sets of a definition by Service have.
func (b *backends) cost(k kind, of model.ServiceKey) int {
	n := 0
	for _, s := range b.of[of] {
		switch {
		case s.standing == covered:
			n += len(s.cover)
		case s.standing == inFull && k == kindServicePort:
			n += pairsOf(s.EndpointSlice)
		default:
			n += len(s.Addrs)
		}
	}
	return n
}

// leftOut are the Services of which an EndpointSlice does not count in full.
func (b *backends) leftOut() map[model.ServiceKey]struct{} {
	all := map[model.ServiceKey]struct{}{}
	for namespace, a := range b.pairs.by {
		for name := range a.out {
			all[b.slices[model.EndpointSliceID{Namespace: namespace, Name: name}].Service] = struct{}{}
		}
	}
	return all
}

// covering returns the smallest prefix of each family that has its addresses in it.
func covering(addrs []netip.Addr) []netip.Prefix {
	low, high := map[int]netip.Addr{}, map[int]netip.Addr{} // by length
	for _, a := range addrs {
		p, ok := hostPrefix(a)
		if !ok {
			continue
		}
		n, a := p.Bits(), p.Addr()
		if known := low[n]; !known.IsValid() || a.Less(known) {
			low[n] = a
		}
		if known := high[n]; !known.IsValid() || known.Less(a) {
			high[n] = a
		}
	}
	var all []netip.Prefix
	for n, first := range low {
		p := netip.PrefixFrom(first, n)
		for !p.Contains(high[n]) {
			p = netip.PrefixFrom(first, p.Bits()-1)
		}
		all = append(all, p.Masked())
	}
	return all
}
