package bpf

import (
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// Stats implements Dataplane. It takes time in proportion to the local endpoints, and none for the cluster's.
func (d *BPF) Stats(interfaces bool) dataplane.Stats {
	s, m := d.state, d.kernel.maps
	sizes, usage := s.plans.Compiler.Sizes(), s.tables.slots.Usage()
	stats := dataplane.Stats{
		Classes: sizes.Classes, Tables: len(s.tables.list), LiveBytes: usage.LiveBytes, IdleBytes: usage.IdleBytes,
		Rules: m.Names.Rules.Len(), Sets: len(s.names.sets), Unwritten: len(s.plans.Waiting), Repairs: d.repairs + d.kernel.host.Repairs(),
	}
	if !s.plans.Done() {
		stats.Unwritten++
	}
	s.status.count(&stats)
	if interfaces {
		stats.Interfaces = make(map[uint32]model.EndpointID, len(s.endpoints.roster.bound))
		for id, ep := range s.endpoints.roster.bound {
			if ep.ifindex != 0 && ep.policy != nil {
				stats.Interfaces[ep.ifindex] = id
			}
		}
	}
	for _, t := range []interface {
		Name() string
		Len() int
	}{
		m.Addresses.IP4Host, m.Addresses.IP6Host, m.Addresses.IP4Net, m.Addresses.IP6Net, m.ClassSets, m.Names.Sets, m.Names.Rules, m.Names.Endpoints,
	} {
		stats.Maps = append(stats.Maps, mapUse(t.Name(), uint64(t.Len()), uint64(m.MaxEntries(t.Name()))))
	}
	stats.Maps = append(stats.Maps,
		mapUse(bpf.MargayMapEndpoints, uint64(d.kernel.endpoints.Len()), uint64(m.MaxEntries(bpf.MargayMapEndpoints))),
		mapUse(bpf.MargayMapSlots, uint64(usage.Live), uint64(m.MaxEntries(bpf.MargayMapSlots))))
	handedOut, most := d.kernel.gens.Use()
	stats.Maps = append(stats.Maps, mapUse("generations", uint64(handedOut), uint64(most)))
	if entries, limit := d.flowTable.limiter.Use(); limit > 0 {
		stats.Maps = append(stats.Maps, mapUse("nf_conntrack", uint64(entries), uint64(limit)))
	}
	return stats
}

// unobserved is the observer of a dataplane without one.
type unobserved struct{}

func (unobserved) Compiled(time.Duration)  {}
func (unobserved) Published(time.Duration) {}

func mapUse(name string, entries, most uint64) dataplane.MapUse {
	return dataplane.MapUse{Name: name, Entries: entries, Max: most}
}
