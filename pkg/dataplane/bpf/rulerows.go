package bpf

import (
	"fmt"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// programRows are the entries of one match table.
func programRows(p *match.Program, d model.Direction, names func(uint32) string, counts inspect.Counts) []inspect.RuleRow {
	rows := make([]inspect.RuleRow, 0, len(p.Rules))
	reached := p.Reached()
	for i, r := range p.Rules {
		id, count := p.IDs[i], counts[r.Id]
		row := inspect.RuleRow{
			Direction: d.String(), Index: i, Rule: id.String(), Reason: reasonText(id), Action: actionText(r.Action),
			Tier: id.Tier, Object: inspect.Object{Namespace: id.Policy.Namespace, Name: id.Policy.Name},
			Match: ruleText(r, d == model.Ingress, names), ID: r.Id, NeverReached: !reached[i],
			Packets: count.Packets, Bytes: count.Bytes,
		}
		row.APIVersion, row.Kind = id.Policy.Kind.API()
		rows = append(rows, row)
	}
	return rows
}

// reasonText is the users' name of the rule, or of the place in policy, behind an entry.
func reasonText(id model.RuleID) string {
	switch id.Point {
	case model.AtEndOfTier:
		if id.Tier == model.TierDefault && id.Policy.Kind == model.KindKubernetesNetworkPolicy {
			return "no rule matches"
		}
		return "no rule of tier " + id.Tier + " matches"
	case model.AtNoProfile:
		return "nothing allows it"
	case model.AtRule:
		if _, ok := model.NamespaceOfProfile(id.Policy.Name); ok && id.Policy.Kind == model.KindProfile {
			return "no policy decides"
		}
		return fmt.Sprintf("%s %s[%d]", id.Policy.ObjectText(), id.Direction, id.Index)
	}
	return id.String()
}

func countTrue(list []bool) int {
	n := 0
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// setText is a set without a name.
func setText(n uint32) string { return fmt.Sprintf("set %d", n) }
