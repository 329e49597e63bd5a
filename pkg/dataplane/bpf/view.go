package bpf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// beingMade is what is said of endpoints whose policy is so large that the changes of others come in between.
const beingMade = "the new one is large and being made"

// Endpoints implements Dataplane.
func (d *BPF) Endpoints() []dataplane.EndpointStatus {
	known, compiler := d.state.endpoints, d.state.plans.compiler
	list := make([]dataplane.EndpointStatus, 0, len(known.bound))
	waiting := compiler.Waiting()
	failed := map[model.EndpointID]string{}
	for at, err := range compiler.Failed() {
		if text := err.Error(); failed[at.Endpoint] < text { // of both directions always the same
			failed[at.Endpoint] = text
		}
	}
	for id, ep := range known.bound {
		if ep.policy == nil {
			continue
		}
		s := dataplane.EndpointStatus{ID: id, Iface: ep.policy.Iface, Addrs: ep.policy.Addrs, Ifindex: ep.ifindex}
		s.Condition, s.Reason = d.state.condition(id, ep, failed[id], waiting[id])
		list = append(list, s)
		delete(failed, id)
		delete(waiting, id)
	}
	for id := range waiting {
		if failed[id] == "" {
			list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Pending, Reason: "closed: " + beingMade})
		}
	}
	for id, text := range failed {
		list = append(list, dataplane.EndpointStatus{ID: id, Condition: dataplane.Held, Reason: "closed: " + text})
	}
	slices.SortFunc(list, func(a, b dataplane.EndpointStatus) int { return a.ID.Compare(b.ID) })
	return list
}

// condition is how it stands with an endpoint. held is why its policy cannot be compiled; empty: it can. making: another
// policy is being made for it.
func (s *state) condition(id model.EndpointID, ep *endpoint, held string, making bool) (dataplane.Condition, string) {
	switch {
	case held != "":
		if _, open := s.plans.compiler.Endpoint(id); !open || ep.ifindex == 0 {
			return dataplane.Held, "closed: " + held
		}
		return dataplane.Held, "keeps its last policy: " + held
	case ep.failure != "":
		return dataplane.Failed, ep.failure
	case making:
		return dataplane.Pending, "keeps its last policy: " + beingMade
	case ep.ifindex == 0:
		return dataplane.NoInterface, "waiting for its interface"
	case len(ep.policy.Addrs) == 0:
		return dataplane.NoAddress, "it owns no address: all that it sends is dropped"
	case s.inForce(id, ep):
		return dataplane.Enforced, ""
	}
	return dataplane.Pending, ""
}

// Detail is what the kernel has of one endpoint, for people. By model.Direction.
type Detail struct {
	Slots, Generations [2]uint32
	Tables             [2]table.ID
}

// Detail is that of an endpoint; zero if the kernel has nothing of it.
func (d *BPF) Detail(id model.EndpointID) Detail {
	ep := d.state.endpoints.bound[id]
	if ep == nil {
		return Detail{}
	}
	detail := Detail{Generations: ep.gens, Tables: ep.tables}
	for dir, t := range ep.tables {
		detail.Slots[dir] = d.state.tables.slot(t)
	}
	return detail
}

// Program is the ordered match table of a table in the kernel; nil if there is none, or if it is an earlier agent's. It
// must not be changed.
func (d *BPF) Program(id table.ID) *match.Program { return d.state.tables.list[id].program }

// Maps are the maps the dataplane writes, for readers of what the programs write. They belong to d.
func (d *BPF) Maps() *bpfmaps.Maps { return d.kernel.maps }

// Programs are the programs in force, for test-runs. They belong to d.
func (d *BPF) Programs() *bpfmaps.Programs { return d.programs }

// Compiler has the tables in force, to look at. It belongs to d.
func (d *BPF) Compiler() *plan.Compiler { return d.state.plans.compiler }

// Kernel is the kernel's entry of an endpoint; not ok if it has none.
func (d *BPF) Kernel(id model.EndpointID) (bpf.Endpoint, bool) {
	ep := d.state.endpoints.bound[id]
	if ep == nil || ep.ifindex == 0 {
		return bpf.Endpoint{}, false
	}
	return d.kernel.endpoints.Get(ep.ifindex)
}

// SetKernel puts an entry into the kernel that no plan knows: for test-runs, whose packets come from an interface of
// their own.
func (d *BPF) SetKernel(e bpf.Endpoint) error { return d.kernel.endpoints.Set(e) }

// Sets are the numbers of the sets that rules in the kernel refer to. The map must not be changed.
func (d *BPF) Sets() map[uint32]model.SetID { return d.state.names.sets }

// SetID is the set of that number.
func (d *BPF) SetID(n uint32) (model.SetID, bool) {
	id, ok := d.state.names.sets[n]
	return id, ok
}

// NetMembers are the members of a set that stands for a CIDR list of rules; nil if it is none.
func (d *BPF) NetMembers(id model.SetID) []netip.Prefix { return d.state.tables.netMembers(id) }

// NetText is such a CIDR list in words; the id if it is none.
func (d *BPF) NetText(id model.SetID) string {
	const most = 4
	members := d.NetMembers(id)
	if members == nil {
		return string(id)
	}
	var parts []string
	for _, p := range members[:min(len(members), most)] {
		parts = append(parts, p.String())
	}
	if len(members) > most {
		parts = append(parts, fmt.Sprintf("and %d more", len(members)-most))
	}
	return strings.Join(parts, ", ")
}
