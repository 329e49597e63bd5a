package bpf

import (
	"fmt"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// roster lists the local endpoints with the record of each. Endpoints that an earlier agent programmed have a stand-in
// for their id until a plan names the endpoint of their interface.
type roster struct {
	bound   map[model.EndpointID]*endpoint
	adopted map[string]model.EndpointID // stand-ins, by interface
}

// endpoint is the desired and the applied state of one local endpoint.
type endpoint struct {
	policy  *model.EndpointPolicy
	tables  [2]table.ID // by model.Direction
	gens    [2]uint32
	ifindex uint32 // programmed in the kernel; 0: not
	ensured uint32 // interface that programs are attached to, as far as is known; 0: to be made sure
	peer    Peer
	failure string // why it could not be programmed; empty: it was
	number  uint32 // not greater than any of its generations: older stamps are of other endpoints; 0: it has none yet
	refused uint64 // open flows beyond its share, as last reported
	share   uint32 // of the flow tables, plus one; 0: none yet
	unasked bool   // an earlier agent may have died before it had its flows judged again
}

func newRoster() *roster {
	return &roster{bound: map[model.EndpointID]*endpoint{}, adopted: map[string]model.EndpointID{}}
}

// adopt records an endpoint that an earlier agent programmed on an interface, and returns its stand-in.
func (r *roster) adopt(iface string, ep *endpoint) model.EndpointID {
	id := model.WorkloadID("", "ifindex-"+fmt.Sprint(ep.ifindex))
	r.bound[id] = ep
	r.adopted[iface] = id
	return id
}

// isProgrammed reports whether an endpoint is programmed on the interface.
func (r *roster) isProgrammed(ifindex uint32) bool {
	for _, ep := range r.bound {
		if ep.ifindex == ifindex {
			return true
		}
	}
	return false
}

// record returns the record of an endpoint: its own, that of the interface an earlier agent programmed, or a new one.
func (r *roster) record(p *model.EndpointPolicy) *endpoint {
	if ep := r.bound[p.ID]; ep != nil {
		return ep
	}
	old, ok := r.adopted[p.Iface]
	ep := r.bound[old]
	if ok && ep != nil {
		delete(r.bound, old)
	} else {
		ep = &endpoint{}
	}
	delete(r.adopted, p.Iface)
	r.bound[p.ID] = ep
	return ep
}

// remove removes an endpoint.
func (r *roster) remove(id model.EndpointID) { delete(r.bound, id) }

// interfaceOf is the interface an endpoint is programmed on, also if an earlier agent did it and this one is about to take
// the endpoint over by one of the bindings; 0: none.
func (r *roster) interfaceOf(id model.EndpointID, bindings []plan.Binding) uint32 {
	if ep := r.bound[id]; ep != nil {
		return ep.ifindex
	}
	for _, b := range bindings {
		if b.Endpoint.ID != id {
			continue
		}
		if old, ok := r.adopted[b.Endpoint.Iface]; ok && r.bound[old] != nil {
			return r.bound[old].ifindex
		}
	}
	return 0
}

// open are the interfaces, by ifindex, that endpoints are programmed on.
func (r *roster) open() map[uint32]bool {
	open := make(map[uint32]bool, len(r.bound))
	for _, ep := range r.bound {
		if ep.ifindex != 0 {
			open[ep.ifindex] = true
		}
	}
	return open
}
