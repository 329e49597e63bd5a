// Package ruletext puts ordered match tables, and the sets that they refer to, into the words of users. Every dataplane enforces
// such tables.
package ruletext

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Rows are the entries of one match table, with the counts of their rules. names gives a set its words by its number.
func Rows(p *match.Program, d model.Direction, names func(uint32) string, counts inspect.Counts) []inspect.RuleRow {
	rows := make([]inspect.RuleRow, 0, len(p.Rules))
	names, reached := once(names), p.Reached()
	for i, r := range p.Rules {
		id, count := p.IDs[i], counts[r.Id]
		row := inspect.RuleRow{
			Direction: d.String(), Index: i, Rule: nameOf(id), Reason: reasonText(id), Action: actionText(r.Action),
			Tier: id.Tier, Object: inspect.Object{Namespace: id.Policy.Namespace, Name: id.Policy.Name},
			Match: ruleText(r, d == model.Ingress, names), ID: r.Id, NeverReached: !reached[i],
			Packets: count.Packets, Bytes: count.Bytes,
		}
		row.APIVersion, row.Kind = id.Policy.Kind.API()
		rows = append(rows, row)
	}
	return rows
}

// once asks for the words of each set once: the agent's loop waits for them, and a rule of a tenant may be thousands of entries.
func once(names func(uint32) string) func(uint32) string {
	known := map[uint32]string{}
	return func(n uint32) string {
		text, ok := known[n]
		if !ok {
			text = names(n)
			known[n] = text
		}
		return text
	}
}

// nameOf is the name of a rule in traces. Of one that an earlier agent has made it may be all that is known.
func nameOf(id model.RuleID) string {
	if id.Point == 0 {
		return cmp.Or(id.Tier, "a rule without a name")
	}
	return id.String()
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
	return nameOf(id)
}

// Reached is the number of entries of a match table that packets can reach.
func Reached(p *match.Program) int {
	n := 0
	for _, reached := range p.Reached() {
		if reached {
			n++
		}
	}
	return n
}

// Set is a set without a name.
func Set(n uint32) string { return fmt.Sprintf("set %d", n) }

// CIDRs is a set that stands for a CIDR list of rules, in words; the id if it has no members and so is none.
func CIDRs(id model.SetID, members []netip.Prefix) string {
	const most = 4
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
