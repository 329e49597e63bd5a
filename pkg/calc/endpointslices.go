package calc

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// updateSlice replaces one EndpointSlice; nil removes it.
func (x *setIndex) updateSlice(id model.EndpointSliceID, now *model.EndpointSlice) {
	was := x.slices[id]
	if was == now || was != nil && now != nil && equalSlices(was, now) {
		return
	}
	if now != nil {
		x.slices[id] = now
		ids := x.slicesOf[now.Service]
		if ids == nil {
			ids = map[model.EndpointSliceID]struct{}{}
			x.slicesOf[now.Service] = ids
		}
		ids[id] = struct{}{}
		x.countSlice(now, 1)
	}
	if was == nil {
		return
	}
	x.countSlice(was, -1)
	if now == nil {
		delete(x.slices, id)
	}
	if now == nil || now.Service != was.Service {
		delete(x.slicesOf[was.Service], id)
		if len(x.slicesOf[was.Service]) == 0 {
			delete(x.slicesOf, was.Service)
		}
	}
}

func equalSlices(a, b *model.EndpointSlice) bool {
	return a.Service == b.Service && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports)
}

func (x *setIndex) countSlice(slice *model.EndpointSlice, delta int32) {
	for _, k := range []kind{kindServicePort, kindServiceAddrs} {
		if d := x.definitions[definitionKey{kind: k, service: slice.Service}]; d != nil {
			x.addSlice(d, slice, delta)
		}
	}
}

// addSlice counts the slice's addresses into (or out of) the sets of a definition by Service.
func (x *setIndex) addSlice(d *definition, slice *model.EndpointSlice, delta int32) {
	ports := []portKey{{}}
	if d.key.kind.byPort() {
		ports = nil
		for _, p := range slice.Ports {
			if model.HasPorts(p.Protocol) {
				ports = append(ports, keyOf(p))
			}
		}
	}
	for _, port := range ports {
		for _, a := range slice.Addrs {
			if p, ok := hostPrefix(a); ok {
				x.count(x.setOf(d, port), p, delta)
			}
		}
	}
}

// replaceAddrs replaces one object's contribution to a reserved set.
func (x *setIndex) replaceAddrs(id model.SetID, was, now []netip.Addr) {
	for _, a := range now {
		if p, ok := hostPrefix(a); ok {
			x.count(x.byID[id], p, 1)
		}
	}
	for _, a := range was {
		if p, ok := hostPrefix(a); ok {
			x.count(x.byID[id], p, -1)
		}
	}
}
