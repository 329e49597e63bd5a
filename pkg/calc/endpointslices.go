package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// serviceSets fills the sets of definitions by Service from the EndpointSlices of the cluster.
type serviceSets struct {
	backends backends
	defined  map[definitionKey]*definition
	crowded  map[model.EndpointSliceID]*backendSlice // there is no room for them among those of all namespaces
	untried  bool                                    // maybe there is now for some
	room     *room
	sets     *setTable
}

func newServiceSets(sets *setTable, r *room) *serviceSets {
	return &serviceSets{backends: newBackends(MaxBackends), defined: map[definitionKey]*definition{},
		crowded: map[model.EndpointSliceID]*backendSlice{}, room: r, sets: sets}
}

// define finds the members of a new definition.
func (x *serviceSets) define(d *definition) {
	x.defined[d.key] = d
	for id, s := range x.backends.of[d.key.service] {
		x.contribute(id, s)
		x.addSlice(d, s, 1)
	}
	d.ports = d.livePorts()
}

// undefine forgets a definition, and the lists of the EndpointSlices of its Service if no other needs them.
func (x *serviceSets) undefine(d *definition) {
	delete(x.defined, d.key)
	for _, k := range kindsByService {
		if x.defined[definitionKey{kind: k, service: d.key.service}] != nil {
			return
		}
	}
	for id, s := range x.backends.of[d.key.service] {
		x.release(id, s)
		s.contributed, s.crowded = nil, false
	}
}

// contribute makes the list of a slice that a rule comes to refer to, of what there is room for.
func (x *serviceSets) contribute(id model.EndpointSliceID, s *backendSlice) {
	if s.contributed != nil {
		return
	}
	switch n := len(s.Addrs); {
	case s.standing == covered:
	case s.LeftOut: // by another graph, and for good
		s.crowded = true
	case x.room.has(id.Namespace, n):
		s.held = n
		x.room.spend(id.Namespace, n)
	default:
		s.crowded, x.room.short = true, true
		x.crowded[id] = s
	}
	s.contributed = x.sets.contribution(s.prefixes())
}

// release gives back the room of a slice that is to go.
func (x *serviceSets) release(id model.EndpointSliceID, s *backendSlice) {
	x.room.spend(id.Namespace, -s.held)
	s.held = 0
	delete(x.crowded, id)
}

// withoutRoom are the Services of slices that there is no room for.
func (x *serviceSets) withoutRoom() map[model.ServiceKey]struct{} {
	all := map[model.ServiceKey]struct{}{}
	for _, s := range x.crowded {
		all[s.Service] = struct{}{}
	}
	return all
}

// mostAdmitted is how many addresses are counted in at once for which there is room again.
const mostAdmitted = 1 << 13

// admit counts slices in full for which there is room now.
func (x *serviceSets) admit() {
	if !x.untried {
		return
	}
	n := 0
	for id, s := range x.crowded {
		if n >= mostAdmitted {
			return
		}
		if x.room.has(id.Namespace, len(s.Addrs)) {
			x.exchange(id, s, x.backends.as(id, s.EndpointSlice))
			n += len(s.Addrs)
		}
	}
	x.untried = false
}

// update replaces EndpointSlices; nil removes one. It replaces those, too, for which there is room now, or none any more.
func (x *serviceSets) update(changed map[model.EndpointSliceID]*model.EndpointSlice) {
	touched := map[string]map[model.ServiceKey]struct{}{} // by namespace of the objects
	for id, now := range changed {
		if touched[id.Namespace] == nil {
			touched[id.Namespace] = map[model.ServiceKey]struct{}{}
		}
		if was := x.backends.slices[id]; was != nil {
			touched[id.Namespace][was.Service] = struct{}{}
		}
		if now != nil {
			touched[id.Namespace][now.Service] = struct{}{}
		}
		x.backends.note(id, now)
	}
	for namespace, services := range touched {
		for id, s := range x.backends.decide(namespace, services) {
			if _, is := changed[id]; !is {
				x.replace(id, s.EndpointSlice)
			}
		}
	}
	for id, now := range changed {
		x.replace(id, now)
	}
}

// replace replaces one EndpointSlice, which counts as decided; nil removes it.
func (x *serviceSets) replace(id model.EndpointSliceID, value *model.EndpointSlice) {
	was, now := x.backends.slices[id], x.backends.as(id, value)
	if was == nil && now == nil || was != nil && now != nil && was.standing == now.standing && equalSlices(was.EndpointSlice, value) {
		return
	}
	if was != nil && now != nil && was.standing == now.standing && was.LeftOut == now.LeftOut && slices.Equal(was.Addrs, now.Addrs) {
		now.contributed, now.crowded = was.contributed, was.crowded
		now.held, was.held = was.held, 0
	}
	x.exchange(id, was, now)
}

// exchange replaces one EndpointSlice by another; nil: there is none.
func (x *serviceSets) exchange(id model.EndpointSliceID, was, now *backendSlice) {
	if was != nil {
		x.release(id, was)
	}
	x.backends.put(id, now)
	if now != nil && now.crowded && !now.LeftOut {
		x.crowded[id] = now
	}
	x.countSlice(id, now, 1)
	x.countSlice(id, was, -1)
}

func equalSlices(a, b *model.EndpointSlice) bool {
	return a == b || a.Service == b.Service && a.LeftOut == b.LeftOut && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports)
}

// countSlice counts a slice, which may be nil, into (or out of) the sets of the definitions by its Service.
func (x *serviceSets) countSlice(id model.EndpointSliceID, slice *backendSlice, delta int32) {
	if slice == nil {
		return
	}
	for _, k := range kindsByService {
		if d := x.defined[definitionKey{kind: k, service: slice.Service}]; d != nil {
			x.contribute(id, slice)
			x.addSlice(d, slice, delta)
		}
	}
}

// addSlice counts the slice's addresses into (or out of) the sets of a definition by Service.
func (x *serviceSets) addSlice(d *definition, slice *backendSlice, delta int32) {
	if len(slice.contributed.prefixes) == 0 {
		return
	}
	for _, port := range slice.portsFor(d.key.kind) {
		x.sets.contribute(x.sets.setOf(d, port), slice.contributed, delta)
	}
}

// portsFor are the ports of the sets of a definition that the slice's addresses are in.
func (s *backendSlice) portsFor(k kind) []portKey {
	if k == kindServiceAddrs {
		return []portKey{{past: s.counts() == covered}} // each address counts, as long as it is known
	}
	var ports []portKey
	for _, p := range s.Ports {
		if !model.HasPorts(p.Protocol) {
			continue
		}
		if s.counts() == inFull {
			ports = append(ports, keyOf(p))
		} else if k := (portKey{protocol: p.Protocol, past: true}); !slices.Contains(ports, k) {
			ports = append(ports, k) // three at most
		}
	}
	return ports
}
