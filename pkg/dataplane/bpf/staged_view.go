package bpf

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Staged implements inspect.Dataplane.
func (i Inspector) Staged(counts inspect.Counts) []inspect.StagedCount {
	byRule := map[model.RuleID]inspect.StagedCount{}
	for _, tables := range i.state().endpoints.staged.bound {
		for _, id := range tables {
			program := i.Program(id)
			if program == nil {
				continue
			}
			for at, rule := range program.IDs {
				if entry := &program.Rules[at]; rule.Staged && (entry.Action == bpf.RuleAllow || entry.Action == bpf.RuleDeny) {
					byRule[rule] = inspect.StagedCount{Rule: rule, Allow: entry.Action == bpf.RuleAllow, Packets: counts[entry.Id].Packets}
				}
			}
		}
	}
	return slices.Collect(maps.Values(byRule))
}
