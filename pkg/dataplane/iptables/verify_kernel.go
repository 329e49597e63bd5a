package iptables

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// Verifier reads the kernel's state for verification: chains as iptables-save prints them, and entries of sets. Each round reads
// everything once, beside the loop. Verdicts come from the reading alone. The dataplane's own state says which endpoints and sets
// there are, and whether a part was written since the reading. verify.Kernel defines which goroutine may call which method.
type Verifier struct {
	dataplane *IPTables
	pause     func() error
	state     *state // of this round
	read      *reading
	listed    []ipsets.Spec                       // sets of further sources, as of the beginning of a round
	sets      map[*ipsets.Set]*ipsets.Observation // of all sets since then
	classes   map[uint32][]uint32                 // the sets that the compiler has in each class, as of the beginning of a round
	unusual   unusual
	policies  numbering[policyKey] // numbers of policies, from 1
	residues  numbering[string]
	unsure    uint64 // how many policies may have changed since they were read
}

var _ verify.Kernel = (*Verifier)(nil)

// Verifier returns the Verifier of d.
func (d *IPTables) Verifier() *Verifier { return &Verifier{dataplane: d} }

// Begin implements verify.Kernel.
func (v *Verifier) Begin(pause func() error) error {
	*v = Verifier{dataplane: v.dataplane, pause: pause, policies: numbering[policyKey]{}, residues: numbering[string]{}}
	return v.Round()
}

// Round implements verify.Kernel. The dataplane may have begun another world since the last one.
func (v *Verifier) Round() error {
	v.state, v.read = v.dataplane.state, nil
	journal := v.state.world.journal
	journal.verify()
	v.sets = map[*ipsets.Set]*ipsets.Observation{}
	for _, t := range v.state.world.tables {
		t.Observe(journal.verifying.Load)
	}
	for _, set := range v.state.sets.all() {
		v.sets[set] = set.Observe(journal.verifying.Load)
	}
	v.classes, v.listed = map[uint32][]uint32{}, nil
	for class := range v.state.plans.Compiler.Classes().All() {
		v.classes[class.ID] = class.Sets
	}
	for _, set := range v.state.sets.listed {
		v.listed = append(v.listed, set.Spec())
	}
	return nil
}

// End implements verify.Kernel.
func (v *Verifier) End() error {
	v.state.world.journal.verifying.Store(false)
	return nil
}

// Entries implements verify.Kernel.
func (v *Verifier) Entries() ([]verify.Entry, error) {
	var err error
	if v.read, err = v.readKernel(); err != nil {
		return nil, err
	}
	return v.read.entries, nil
}

// Entry implements verify.Kernel: the entry that was read, unless the dataplane has written it since.
func (v *Verifier) Entry(a netip.Addr) (verify.Entry, error) {
	if v.fresh() && !v.state.world.journal.moved(a, v.read.since) {
		return v.read.entry(a), nil
	}
	class := uint32(noClass)
	if e, ok := v.dataplane.state.sets.of[familyOf(a)].class.Lookup(keyOf(a)); ok {
		class = v.unusual.class(v.dataplane.state.static.base.Marks, e)
	}
	return verify.Entry{Prefix: single(a), Class: class}, nil
}

// fresh reports whether the world that was read is still that of the dataplane.
func (v *Verifier) fresh() bool { return v.read != nil && v.state == v.dataplane.state }

// HasMarks implements verify.Kernel: entries have classes only. The sets of endpoints have the owners of addresses.
func (v *Verifier) HasMarks() bool { return false }

// HostAddrs implements verify.Kernel.
func (v *Verifier) HostAddrs() []netip.Addr { return v.dataplane.kernel.Node.Addrs() }

// InForce implements verify.Kernel. A policy that may have been written since the reading gets a new number at each call.
func (v *Verifier) InForce(id model.EndpointID) (policies [2]verify.PolicyID, ok bool, err error) {
	state := v.dataplane.state
	ep := state.endpoints.bound[id]
	if ep == nil || ep.policy == nil || len(ep.policy.Addrs) == 0 || !state.world.inForce {
		return policies, false, nil
	}
	journal := state.world.journal
	for _, d := range []model.Direction{model.Ingress, model.Egress} {
		if !v.fresh() || journal.endpoints[id] > v.read.since {
			policies[d] = v.another()
			continue
		}
		key := v.read.enter(ep.policy, d).key()
		for n, slot := range key.slots {
			if slot != 0 {
				key.written[n] = journal.slots[slot]
			}
		}
		if policies[d] = verify.PolicyID(v.policies.of(key)); max(key.written[0], key.written[1]) > v.read.since {
			policies[d] = v.another()
		}
	}
	return policies, true, nil
}

// another returns a number that no other policy has.
func (v *Verifier) another() verify.PolicyID {
	v.unsure++
	return verify.PolicyID(1<<32 + v.unsure)
}

// Staged implements verify.Kernel: staged policies are not evaluated.
func (v *Verifier) Staged(model.EndpointID) (policies [2]verify.PolicyID, err error) {
	return policies, nil
}

// Sets implements verify.Kernel.
func (v *Verifier) Sets() []verify.Set {
	s := v.dataplane.state
	return verify.NumberedSets(s.names.sets, func(yield func(map[model.SetID][]netip.Prefix) bool) {
		for _, at := range s.slots.list {
			if at.table.Program != nil && !yield(at.table.Program.NetSets) {
				return
			}
		}
	})
}

// SetFault implements verify.Kernel: sets of policy have no names in the kernel.
func (v *Verifier) SetFault(verify.Set) (string, error) { return "", nil }

// ClassSets implements verify.Kernel. The kernel does not store the sets of a class, so they come from the compiler.
func (v *Verifier) ClassSets() (map[uint32][]uint32, error) { return v.classes, nil }

// SetsOf implements verify.Kernel.
func (v *Verifier) SetsOf(class uint32) ([]uint32, error) {
	for c := range v.dataplane.state.plans.Compiler.Classes().All() {
		if c.ID == class {
			return c.Sets, nil
		}
	}
	return nil, nil
}

// numbering assigns numbers from 1, the same number to equal keys.
type numbering[K comparable] map[K]uint32

func (n numbering[K]) of(k K) uint32 {
	number, ok := n[k]
	if !ok {
		number = uint32(len(n) + 1)
		n[k] = number
	}
	return number
}
