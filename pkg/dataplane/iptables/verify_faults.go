package iptables

import (
	"fmt"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// Faults implements verify.Kernel.
func (v *Verifier) Faults(id model.EndpointID) (part verify.Part, err error) {
	state := v.dataplane.state
	ep := state.endpoints.bound[id]
	if ep == nil || ep.policy == nil || !v.fresh() || state.world.journal.endpoints[id] > v.read.since {
		part.Skipped = "its entries were written during the reading"
		return part, nil
	}
	for _, d := range []model.Direction{model.Ingress, model.Egress} {
		part.Faults = append(part.Faults, v.read.enter(ep.policy, d).faults(d)...)
	}
	return part, nil
}

// mostFaults bounds the faults of one kind that are reported, since they usually have one cause.
const mostFaults = 100

// NodeFaults implements verify.Kernel: it compares chains and sets with those that were written. So it finds altered rules that no
// question about policy reaches: those for flows under way, for packets to the node, for tunnels and for errors.
func (v *Verifier) NodeFaults() (parts []verify.Part, err error) {
	state := v.dataplane.state
	switch {
	case !v.fresh():
		return []verify.Part{{Name: "chains and IP sets", Skipped: "the agent has begun to replace all of them during the reading"}}, nil
	case !state.world.inForce:
		return []verify.Part{{Name: "chains and IP sets", Skipped: "those of this agent are not in force yet"}}, nil
	}
	if other := v.read.elsewhere; other != "" {
		parts = append(parts, verify.Part{Name: "chains of the other backend", Faults: []string{copiedText(other)}})
	}
	for _, t := range state.world.tables {
		parts = append(parts, tablePart(t, v.read.of[t.family].read[t.name]))
	}
	for _, family := range families {
		f := state.sets.of[family]
		for _, s := range []*ipsets.Set{f.own, f.egress, f.ingress, f.owned} {
			parts = append(parts, v.setPart(s, v.read.of[family].sets[s.Spec().Name]))
		}
	}
	for _, s := range state.sets.listed {
		parts = append(parts, v.setPart(s, v.read.listed[s.Spec().Name]))
	}
	return append(parts, verify.Part{Name: "IP sets of classes", Faults: v.read.uncovered()}), nil
}

func tablePart(t *tableOf, read *iptables.Reading) verify.Part {
	findings, skipped := read.Altered(t.Table)
	part := verify.Part{Name: "chains of " + t.String(), Skipped: skipped}
	for _, f := range findings[:min(len(findings), mostFaults)] {
		part.Faults = append(part.Faults, fmt.Sprintf("%v, %v", t, f))
	}
	return part
}

// setPart compares a set; read is nil if it was not there.
func (v *Verifier) setPart(s *ipsets.Set, read *set) verify.Part {
	name := s.Spec().Name
	part := verify.Part{Name: "IP set " + name}
	var list []ipsets.Entry
	if read != nil {
		list = read.list
	}
	written := v.sets[s]
	if written == nil {
		part.Skipped = "it was made during the reading"
		return part
	}
	all, ok := written.Altered(list)
	switch {
	case !ok:
		part.Skipped = "too many of its entries were written during the reading, or a write has ended in an unknown way"
	case read == nil:
		all = nil
		part.Faults = []string{fmt.Sprintf("there is no IP set %s", name)}
	}
	for _, text := range all[:min(len(all), mostFaults)] {
		part.Faults = append(part.Faults, fmt.Sprintf("IP set %s %s", name, text))
	}
	return part
}

// uncovered describes the sets of classes that have no class for some addresses.
func (r *reading) uncovered() (faults []string) {
	for _, family := range families {
		whole, _ := everything(family)
		if r.classes[whole] != noClass || r.of[family].halves() {
			continue
		}
		faults = append(faults, fmt.Sprintf("IP set %s has no entry for %s", r.of[family].names.Sets(family).Class, whole))
	}
	return faults
}

// halves reports whether each half of the addresses has an entry of its own in the set of classes.
func (f *familyRead) halves() bool {
	n := 0
	for _, family := range families {
		if s := f.sets[f.names.Sets(family).Class]; s != nil {
			for _, e := range s.list {
				if e.Prefix.Bits() == 1 {
					n++
				}
			}
		}
	}
	return n == 2
}
