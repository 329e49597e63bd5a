package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// EndpointState is one endpoint as the dataplane has it.
type EndpointState struct {
	ID      model.EndpointID
	Iface   string
	Addrs   []netip.Addr
	Ifindex uint32 // 0: its interface is not there (yet)
	Number  uint32
	// Enforced: its interface is there, and the policy of both directions, as it is desired, judges what passes.
	Enforced bool
	// By model.Direction.
	Slots, Generations [2]uint32
	Tables             [2]compile.TableID
	Error              string // why it is not as it should be; empty: it is
	Held               bool   // the reason is its policy, and no other endpoint is concerned; see HeldBack
}

// beingMade is what is said of endpoints whose policy is so large that the changes of others come in between.
const beingMade = "the new one is large and being made"

// Endpoints implements Dataplane.
func (d *BPF) Endpoints() []EndpointState {
	list := make([]EndpointState, 0, len(d.bound))
	waiting := d.compiler.Waiting()
	failed := map[model.EndpointID]string{}
	for at, err := range d.compiler.Failed() {
		if text := err.Error(); failed[at.Endpoint] < text { // of both directions always the same
			failed[at.Endpoint] = text
		}
	}
	for id, ep := range d.bound {
		if ep.policy == nil {
			continue
		}
		s := EndpointState{ID: id, Iface: ep.policy.Iface, Addrs: ep.policy.Addrs, Ifindex: ep.ifindex, Number: ep.number,
			Generations: ep.gens, Tables: ep.tables, Error: ep.failure}
		for dir, t := range ep.tables {
			s.Slots[dir] = d.tables[t].slot
		}
		if text, ok := failed[id]; ok {
			s.Error, s.Held = "keeps its last policy: "+text, true
			if _, open := d.compiler.Endpoint(id); !open || ep.ifindex == 0 {
				s.Error = "closed: " + text
			}
			delete(failed, id)
		}
		if waiting[id] && s.Error == "" {
			s.Error = "keeps its last policy: " + beingMade
		}
		delete(waiting, id)
		if ep.ifindex == 0 && s.Error == "" {
			s.Error = "waiting for its interface"
		}
		if len(ep.policy.Addrs) == 0 && s.Error == "" {
			s.Error = "it owns no address: all that it sends is dropped"
		}
		s.Enforced = s.Error == "" && ep.ensured == ep.ifindex && !d.dirty[id] && d.step == len(order)
		list = append(list, s)
	}
	for id := range waiting {
		if failed[id] == "" {
			list = append(list, EndpointState{ID: id, Error: "closed: " + beingMade})
		}
	}
	for id, text := range failed {
		list = append(list, EndpointState{ID: id, Error: "closed: " + text, Held: true})
	}
	slices.SortFunc(list, func(a, b EndpointState) int { return a.ID.Compare(b.ID) })
	return list
}

// Program is the ordered match table of a table in the kernel; nil if there is none, or if it is an earlier agent's. It
// must not be changed.
func (d *BPF) Program(id compile.TableID) *compile.Program { return d.tables[id].program }

// Maps are the maps the dataplane writes, for readers of what the programs write. They belong to d.
func (d *BPF) Maps() *bpfmaps.Maps { return d.maps }

// Programs are the programs in force, for test-runs. They belong to d.
func (d *BPF) Programs() *bpfmaps.Programs { return d.programs }

// Compiler has the tables in force, to look at. It belongs to d.
func (d *BPF) Compiler() *compile.Compiler { return d.compiler }

// Kernel is the kernel's entry of an endpoint; not ok if it has none.
func (d *BPF) Kernel(id model.EndpointID) (bpf.Endpoint, bool) {
	ep := d.bound[id]
	if ep == nil || ep.ifindex == 0 {
		return bpf.Endpoint{}, false
	}
	return d.endpoints.Get(ep.ifindex)
}

// SetKernel puts an entry into the kernel that no plan knows: for test-runs, whose packets come from an interface of
// their own.
func (d *BPF) SetKernel(e bpf.Endpoint) error { return d.endpoints.Set(e) }

// Sets are the numbers of the sets that rules in the kernel refer to. The map must not be changed.
func (d *BPF) Sets() map[uint32]model.SetID { return d.names.sets }

// SetID is the set of that number.
func (d *BPF) SetID(n uint32) (model.SetID, bool) {
	id, ok := d.names.sets[n]
	return id, ok
}

// NetMembers are the members of a set that stands for a CIDR list of rules; nil if it is none.
func (d *BPF) NetMembers(id model.SetID) []netip.Prefix {
	for _, t := range d.tables {
		if t.program == nil {
			continue
		}
		if members, ok := t.program.NetSets[id]; ok {
			return members
		}
	}
	return nil
}

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
