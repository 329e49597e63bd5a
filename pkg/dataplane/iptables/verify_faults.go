package iptables

import (
	"fmt"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// Faults implements verify.Kernel.
func (v *Verifier) Faults(id model.EndpointID) (faults []string, err error) {
	state := v.dataplane.state
	ep := state.endpoints.bound[id]
	if ep == nil || ep.policy == nil || !v.fresh() || state.world.journal.endpoints[id] > v.read.since {
		return nil, nil
	}
	for _, d := range []model.Direction{model.Ingress, model.Egress} {
		faults = append(faults, v.read.enter(ep.policy, d).faults(d)...)
	}
	return faults, nil
}

// mostFaults bounds the faults of one kind that are reported, since they usually have one cause.
const mostFaults = 100

// NodeFaults implements verify.Kernel: it compares chains and sets with those that were written. So it finds altered rules that no
// question about policy reaches: those for flows under way, for packets to the node, for tunnels and for errors.
func (v *Verifier) NodeFaults() (faults []string, err error) {
	state := v.dataplane.state
	if !v.fresh() || !state.world.inForce {
		return nil, nil
	}
	if state.world.journal.chains <= v.read.since {
		for _, t := range state.world.tables {
			read := v.read.of[t.family].mangle
			if t.name == "filter" {
				read = v.read.of[t.family].filter
			}
			faults = append(faults, tableFaults(t, read)...)
		}
	}
	journal := state.world.journal
	for _, family := range families {
		f, list := state.sets.of[family], []*ipsets.Set(nil)
		if !state.endpoints.writtenSince(v.read.since) {
			list = append(list, f.own, f.egress, f.ingress)
		}
		if journal.owned <= v.read.since {
			list = append(list, f.owned)
		}
		for _, s := range list {
			faults = append(faults, setFaults(s, v.read.of[family].sets[s.Spec().Name])...)
		}
	}
	if journal.listed <= v.read.since {
		for _, s := range state.sets.listed {
			if read, ok := v.read.listed[s.Spec().Name]; ok { // otherwise it was made after the round began
				faults = append(faults, setFaults(s, read)...)
			}
		}
	}
	return append(faults, v.read.uncovered()...), nil
}

func tableFaults(t *tableOf, read *iptables.Reading) (faults []string) {
	for _, f := range read.Altered(t.Table) {
		if faults = append(faults, fmt.Sprintf("%v, %v", t, f)); len(faults) == mostFaults {
			break
		}
	}
	return faults
}

func setFaults(s *ipsets.Set, read *set) (faults []string) {
	if read == nil {
		return []string{fmt.Sprintf("there is no IP set %s", s.Spec().Name)}
	}
	all := s.Altered(read.list)
	for _, text := range all[:min(len(all), mostFaults)] {
		faults = append(faults, fmt.Sprintf("IP set %s %s", s.Spec().Name, text))
	}
	return faults
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

// writtenSince reports whether entries of endpoints were written since a time.
func (e *endpoints) writtenSince(time uint64) bool {
	for _, at := range e.journal().endpoints {
		if at > time {
			return true
		}
	}
	return e.journal().unbound > time
}
