package dataplane

import (
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Observer is told how long the parts of Apply took, by the goroutine that calls Apply. It must be quick.
type Observer interface {
	Compiled(took time.Duration)  // changes into a plan
	Published(took time.Duration) // a plan written to the kernel, or as much of it as could be
}

// MapUse is how full a map is.
type MapUse struct {
	Name         string
	Entries, Max uint64
}

// Stats are numbers of what the dataplane has, at one moment between two Applies.
type Stats struct {
	// Local endpoints: judged by the policy that is desired; not yet, because the interface is missing or writes are
	// still to be made; not, because something about them fails.
	Enforced, Waiting, Failed int

	Classes              int // of addresses
	Rules                int // API rules that tables in the kernel refer to
	Sets                 int // address sets, the CIDR lists of rules included, that they refer to
	Tables               int // compiled policies
	LiveBytes, IdleBytes uint64
	Unwritten            int    // batches of changes that are not completely in the kernel
	Repairs              uint64 // what somebody else had changed, and was put right, since the start
	Maps                 []MapUse

	// Interfaces are the endpoints by ifindex; nil unless asked for.
	Interfaces map[uint32]model.EndpointID
}

// Stats implements Dataplane. It takes time in proportion to the local endpoints, and none for the cluster's.
func (d *BPF) Stats(interfaces bool) Stats {
	s, m := d.state, d.kernel.maps
	sizes, usage := s.plans.compiler.Sizes(), s.tables.slots.Usage()
	stats := Stats{
		Classes: sizes.Classes, Tables: len(s.tables.list), LiveBytes: usage.LiveBytes, IdleBytes: usage.IdleBytes,
		Rules: m.RuleNames.Len(), Sets: len(s.names.sets), Unwritten: len(s.plans.waiting), Repairs: d.repairs,
	}
	if !s.plans.done() {
		stats.Unwritten++
	}
	s.countEndpoints(&stats)
	if interfaces {
		stats.Interfaces = make(map[uint32]model.EndpointID, len(s.endpoints.bound))
		for id, ep := range s.endpoints.bound {
			if ep.ifindex != 0 && ep.policy != nil {
				stats.Interfaces[ep.ifindex] = id
			}
		}
	}
	for _, t := range []interface {
		Name() string
		Len() int
	}{
		m.IP4Host, m.IP6Host, m.IP4Net, m.IP6Net, m.ClassSets, m.SetNames, m.RuleNames, m.EndpointNames,
	} {
		stats.Maps = append(stats.Maps, MapUse{t.Name(), uint64(t.Len()), uint64(m.MaxEntries(t.Name()))})
	}
	stats.Maps = append(stats.Maps,
		MapUse{bpf.MargayMapEndpoints, uint64(d.kernel.endpoints.Len()), uint64(m.MaxEntries(bpf.MargayMapEndpoints))},
		MapUse{bpf.MargayMapSlots, uint64(usage.Live), uint64(m.MaxEntries(bpf.MargayMapSlots))})
	return stats
}

func (s *state) countEndpoints(stats *Stats) {
	failed := map[model.EndpointID]bool{}
	for at := range s.plans.compiler.Failed() {
		failed[at.Endpoint] = true
	}
	for id, ep := range s.endpoints.bound {
		switch {
		case ep.policy == nil: // an earlier agent's, not known yet
		case ep.failure != "" || failed[id]:
			stats.Failed++
		case ep.ifindex == 0 || !s.inForce(id, ep):
			stats.Waiting++
		default:
			stats.Enforced++
		}
		delete(failed, id)
	}
	stats.Failed += len(failed)
}

// inForce reports whether all of an endpoint that plans and interfaces ask for is done.
func (s *state) inForce(id model.EndpointID, ep *endpoint) bool {
	return ep.ensured == ep.ifindex && !s.endpoints.dirty[id] && s.plans.done()
}

// unobserved is told when nobody else is.
type unobserved struct{}

func (unobserved) Compiled(time.Duration)  {}
func (unobserved) Published(time.Duration) {}
