package bpf

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// adopted notes the tables of an earlier agent, as the compiler has taken them over.
func (t *tables) adopted(list []*table.Table) {
	for _, earlier := range list {
		if p, ok := t.list[earlier.ID]; ok {
			p.earlier = earlier
			t.list[earlier.ID] = p
		}
	}
}

// program is the ordered match table of a table in the kernel; nil if there is none. If no policy has said so far what the rules of an
// earlier agent's are, they are what their names in the kernel say.
func (t *tables) program(id table.ID) *match.Program {
	p := t.list[id]
	switch {
	case p.program != nil || p.earlier == nil:
		return p.program
	case !slices.ContainsFunc(p.earlier.Program.IDs, isUnknown):
		return p.earlier.Program
	}
	named := *p.earlier.Program
	named.IDs = slices.Clone(named.IDs)
	for i, rule := range named.IDs {
		if known, ok := model.ParseRuleID(rule.Tier, rule.Direction); ok && isUnknown(rule) {
			named.IDs[i] = known
		}
	}
	return &named
}

// isUnknown reports whether the compiler knows no more of a rule than its name, which it has as the tier (plan.Compiler).
func isUnknown(rule model.RuleID) bool { return rule.Point == 0 }

// netMembers are the members of a set that stands for a CIDR list of rules; nil for other sets.
func (t *tables) netMembers(id model.SetID) []netip.Prefix {
	for table := range t.list {
		if program := t.program(table); program != nil {
			if members, ok := program.NetSets[id]; ok {
				return members
			}
		}
	}
	return nil
}
