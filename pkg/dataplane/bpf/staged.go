package bpf

import (
	"fmt"
	"log/slog"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// stagedPolicies are the tables of shadows, which hold the verdicts that workloads' staged policies would give. They decide
// nothing, so a failed write of them holds up nothing: the staged policies are then not evaluated.
type stagedPolicies struct {
	table  *bpfmaps.Table[uint32, bpf.Staged] // by interface
	slots  *tables
	log    *slog.Logger
	bound  map[model.EndpointID][2]table.ID // by workload and direction; 0: none
	failed bool                             // the map could not be written, and the log knows
}

func newStagedPolicies(k *kernel, t *tables) *stagedPolicies {
	return &stagedPolicies{table: k.maps.Staged, slots: t, log: k.log, bound: map[model.EndpointID][2]table.ID{}}
}

// workloadOf is the workload of a shadow; not ok: the id is no shadow's.
func workloadOf(id model.EndpointID) (workload model.EndpointID, ok bool) {
	return model.WorkloadID(id.Namespace, id.Name), id.Kind == model.ShadowEndpoint
}

// set gives a workload the tables of its shadow.
func (s *stagedPolicies) set(workload model.EndpointID, b plan.Binding) {
	tables := [2]table.ID{b.Ingress, b.Egress}
	for d, p := range [2]*model.DirectionPolicy{b.Endpoint.Ingress, b.Endpoint.Egress} {
		if staged.IsNone(p) {
			tables[d] = 0
		}
	}
	s.bound[workload] = tables
}

// drop takes the tables of a workload's shadow away.
func (s *stagedPolicies) drop(workload model.EndpointID) { delete(s.bound, workload) }

// users are the workloads that a table is for.
func (s *stagedPolicies) users(of table.ID) (workloads []model.EndpointID) {
	for id, tables := range s.bound {
		if tables[0] == of || tables[1] == of {
			workloads = append(workloads, id)
		}
	}
	return workloads
}

// lose drops all that a table is for, and returns whose these were.
func (s *stagedPolicies) lose(lost table.ID) (workloads []model.EndpointID) {
	workloads = s.users(lost)
	for _, id := range workloads {
		delete(s.bound, id)
	}
	return workloads
}

// write writes the tables of a workload's staged policies to the entry of its interface; without any it removes the
// entry.
func (s *stagedPolicies) write(workload model.EndpointID, ifindex uint32) {
	var entry bpf.Staged
	tables := s.bound[workload]
	for d, word := range [2]*uint64{&entry.Ingress, &entry.Egress} {
		if slot := s.slots.slot(tables[d]); tables[d] != 0 && slot != 0 {
			*word = bpfmaps.PolicyWord(slot, 1) // no stamp is compared with it
		}
	}
	if entry == (bpf.Staged{}) {
		s.remove(ifindex)
		return
	}
	s.table.Set(ifindex, entry)
	s.sync()
}

// remove removes the entry of an interface.
func (s *stagedPolicies) remove(ifindex uint32) {
	if _, ok := s.table.Get(ifindex); !ok {
		return
	}
	s.table.Delete(ifindex)
	s.sync()
}

// sync writes the pending entries. A failure is logged once.
func (s *stagedPolicies) sync() {
	err := s.table.Sync()
	if err != nil && !s.failed {
		s.log.Warn("staged policies cannot be written to the kernel and are not evaluated; policy is enforced all the same", "err", err)
	}
	s.failed = err != nil
}

// reread looks for changes made by others, and repairs them.
func (s *stagedPolicies) reread() {
	_, _ = s.table.Resync() // an entry that cannot be read is not repaired
	s.sync()
}

// flags are those of an endpoint's entry whose directions have staged policies in the kernel.
func (s *stagedPolicies) flags(workload model.EndpointID, ifindex uint32) (flags uint32) {
	entry, ok := s.table.Believed(ifindex)
	tables := s.bound[workload]
	if ok && tables[model.Ingress] != 0 && entry.Ingress != 0 {
		flags |= bpf.EPStagedIngress
	}
	if ok && tables[model.Egress] != 0 && entry.Egress != 0 {
		flags |= bpf.EPStagedEgress
	}
	return flags
}

// hold adds the slots that entries in the kernel refer to.
func (s *stagedPolicies) hold(held map[uint32]bool) {
	for _, entry := range s.table.All() {
		for _, word := range []uint64{entry.Ingress, entry.Egress} {
			slot, _ := bpfmaps.SplitPolicyWord(word)
			held[slot] = true
		}
	}
	for _, ifindex := range s.table.Unwritten() {
		if entry, ok := s.table.Believed(ifindex); ok {
			for _, word := range []uint64{entry.Ingress, entry.Egress} {
				slot, _ := bpfmaps.SplitPolicyWord(word)
				held[slot] = true
			}
		}
	}
}

// notEvaluated says why the staged policies of an endpoint are not evaluated; empty: they are, or there are none. compile is
// why they could not be compiled.
func (s *stagedPolicies) notEvaluated(id model.EndpointID, ifindex uint32, compile error) string {
	if compile != nil {
		return compile.Error()
	}
	if s.bound[id] != [2]table.ID{} && s.table.IsUnwritten(ifindex) {
		return fmt.Sprintf("the map %s cannot be written", s.table.Name())
	}
	return ""
}
