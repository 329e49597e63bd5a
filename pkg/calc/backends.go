package calc

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// MaxBackends is the number of backends that the EndpointSlices of a namespace have together: an object may have 40,000 addresses
// and 20,000 ports, and each address is a backend with each port. The smaller objects count as they are. Of the larger
// ones only the addresses count, up to the same number in all, the shortest lists first. The rest count as the prefixes that cover their
// addresses. A rule that refers to the Service fails closed for these (withPast).
const MaxBackends = 1 << 17

// MaxServicePorts is the number of ports that the EndpointSlices of a Service have together; of a Service with more only the addresses
// count. A rule that refers to it has a set for each port, and must not be refused for what the author of a Service has written.
const MaxServicePorts = 1 << 12

// backends has the EndpointSlices of the cluster, and how each counts. That depends on the present objects alone.
type backends struct {
	slices map[model.EndpointSliceID]*backendSlice
	of     map[model.ServiceKey]map[model.EndpointSliceID]*backendSlice
	pairs  allotment // of address and port
	addrs  allotment
	ports  map[model.ServiceKey]int // of all its objects
	most   int                      // MaxServicePorts
}

// backendSlice is an EndpointSlice. It is replaced when it counts otherwise than before.
type backendSlice struct {
	*model.EndpointSlice
	standing    standing
	cover       []netip.Prefix // if it is covered
	contributed *contribution  // nil until a rule refers to the Service
	held        int            // so many of its addresses, of the room of all namespaces
	crowded     bool           // it is covered for want of that
}

// counts is how it counts.
func (s *backendSlice) counts() standing {
	if s.crowded {
		return covered
	}
	return s.standing
}

// prefixes are what the addresses count as.
func (s *backendSlice) prefixes() []netip.Prefix {
	switch {
	case s.crowded:
		return coarse(covering(s.Addrs))
	case s.standing == covered:
		return slices.Clone(s.cover)
	}
	all := make([]netip.Prefix, 0, len(s.Addrs))
	for _, a := range s.Addrs {
		if p, ok := hostPrefix(a); ok {
			all = append(all, p)
		}
	}
	return all
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
		pairs: newAllotment(most), addrs: newAllotment(most), ports: map[model.ServiceKey]int{}, most: MaxServicePorts}
}

// note records the size of an EndpointSlice that put has not replaced yet, nil if it is gone.
func (b *backends) note(id model.EndpointSliceID, now *model.EndpointSlice) {
	pairs, addrs := 0, 0
	if now != nil {
		pairs, addrs = pairsOf(now), len(now.Addrs)
		b.countPorts(now, 1)
	}
	if was := b.slices[id]; was != nil {
		b.countPorts(was.EndpointSlice, -1)
	}
	b.pairs.note(id.Namespace, id.Name, pairs)
	b.addrs.note(id.Namespace, id.Name, addrs)
}

func (b *backends) countPorts(s *model.EndpointSlice, delta int) {
	if b.ports[s.Service] += delta * len(s.Ports); b.ports[s.Service] == 0 {
		delete(b.ports, s.Service)
	}
}

func pairsOf(s *model.EndpointSlice) int { return len(s.Addrs) * max(1, len(s.Ports)) }

// decide works out how the EndpointSlices of a namespace count, of which those of some Services have changed, and returns the ones
// that count otherwise than before.
func (b *backends) decide(namespace string, services map[model.ServiceKey]struct{}) map[model.EndpointSliceID]*backendSlice {
	changed := map[model.EndpointSliceID]*backendSlice{}
	look := func(id model.EndpointSliceID) {
		if s := b.slices[id]; s != nil && s.standing != b.standing(id, s.Service) {
			changed[id] = s
		}
	}
	for _, name := range append(b.pairs.decide(namespace), b.addrs.decide(namespace)...) {
		look(model.EndpointSliceID{Namespace: namespace, Name: name})
	}
	for service := range services {
		for id := range b.of[service] {
			look(id)
		}
	}
	return changed
}

// standing is how an EndpointSlice counts whose Service this is.
func (b *backends) standing(id model.EndpointSliceID, service model.ServiceKey) standing {
	switch {
	case !b.pairs.isOut(id.Namespace, id.Name) && b.ports[service] <= b.most:
		return inFull
	case !b.addrs.isOut(id.Namespace, id.Name):
		return byAddr
	}
	return covered
}

// as returns an EndpointSlice as it counts; of nil, nil.
func (b *backends) as(id model.EndpointSliceID, now *model.EndpointSlice) *backendSlice {
	if now == nil {
		return nil
	}
	s := &backendSlice{EndpointSlice: now, standing: b.standing(id, now.Service)}
	if s.standing == covered {
		s.cover = covering(now.Addrs)
	}
	return s
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
		case s.crowded:
			n += 2
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
	for service, ports := range b.ports {
		if ports > b.most {
			all[service] = struct{}{}
		}
	}
	for namespace, name := range b.pairs.leftOut() {
		all[b.slices[model.EndpointSliceID{Namespace: namespace, Name: name}].Service] = struct{}{}
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
