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
	sizes, usage := d.compiler.Sizes(), d.slots.Usage()
	s := Stats{
		Classes: sizes.Classes, Tables: len(d.tables), LiveBytes: usage.LiveBytes, IdleBytes: usage.IdleBytes,
		Rules: d.maps.RuleNames.Len(), Sets: len(d.names.sets), Unwritten: len(d.waiting), Repairs: d.repairs,
	}
	if d.step < len(order) {
		s.Unwritten++
	}
	d.countEndpoints(&s)
	if interfaces {
		s.Interfaces = make(map[uint32]model.EndpointID, len(d.bound))
		for id, ep := range d.bound {
			if ep.ifindex != 0 && ep.policy != nil {
				s.Interfaces[ep.ifindex] = id
			}
		}
	}
	for _, t := range []interface {
		Name() string
		Len() int
	}{
		d.maps.IP4Host, d.maps.IP6Host, d.maps.IP4Net, d.maps.IP6Net, d.maps.ClassSets, d.maps.SetNames, d.maps.RuleNames,
	} {
		s.Maps = append(s.Maps, MapUse{t.Name(), uint64(t.Len()), uint64(d.maps.MaxEntries(t.Name()))})
	}
	s.Maps = append(s.Maps,
		MapUse{bpf.MargayMapEndpoints, uint64(d.endpoints.Len()), uint64(d.maps.MaxEntries(bpf.MargayMapEndpoints))},
		MapUse{bpf.MargayMapSlots, uint64(usage.Live), uint64(d.maps.MaxEntries(bpf.MargayMapSlots))})
	return s
}

func (d *BPF) countEndpoints(s *Stats) {
	failed := map[model.EndpointID]bool{}
	for at := range d.compiler.Failed() {
		failed[at.Endpoint] = true
	}
	for id, ep := range d.bound {
		switch {
		case ep.policy == nil: // an earlier agent's, not known yet
		case ep.failure != "" || failed[id]:
			s.Failed++
		case ep.ifindex == 0 || ep.ensured != ep.ifindex || d.dirty[id] || d.step < len(order):
			s.Waiting++
		default:
			s.Enforced++
		}
		delete(failed, id)
	}
	s.Failed += len(failed)
}

// Observe makes o be told of every Apply from now on. Call it before the first.
func (d *BPF) Observe(o Observer) { d.observer = o }

// unobserved is told when nobody else is.
type unobserved struct{}

func (unobserved) Compiled(time.Duration)  {}
func (unobserved) Published(time.Duration) {}
