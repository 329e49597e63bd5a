package agent

import (
	"fmt"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/agent/wire"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// ruleRows are the ordered match tables of one endpoint.
func ruleRows(g *calc.Graph, d *bpfplane.BPF, id model.EndpointID, stats map[uint32]bpf.Counter) ([]wire.RuleRow, error) {
	names := setNames(g, d)
	rows := []wire.RuleRow{}
	for _, s := range d.Endpoints() {
		if s.ID != id {
			continue
		}
		for dir, table := range d.Detail(id).Tables {
			program := d.Program(table)
			if program == nil {
				continue
			}
			rows = append(rows, programRows(program, model.Direction(dir), names, stats)...)
		}
		return rows, nil
	}
	return nil, fmt.Errorf("no local endpoint %s; see margay show endpoints", id)
}

// programRows are the entries of one match table.
func programRows(p *compile.Program, d model.Direction, names func(uint32) string, stats map[uint32]bpf.Counter) []wire.RuleRow {
	rows := make([]wire.RuleRow, 0, len(p.Rules))
	reached := p.Reached()
	for i, r := range p.Rules {
		id, count := p.IDs[i], stats[r.Id]
		row := wire.RuleRow{
			Direction: d.String(), Index: i, Rule: id.String(), Reason: reasonText(id), Action: actionText(r.Action),
			Tier: id.Tier, Namespace: id.Policy.Namespace, Name: id.Policy.Name,
			Match: RuleText(r, d == model.Ingress, names), ID: r.Id, NeverReached: !reached[i],
			Packets: count.Packets, Bytes: count.Bytes,
		}
		row.APIVersion, row.Kind = id.Policy.Kind.API()
		rows = append(rows, row)
	}
	return rows
}

// reasonText is what users call the rule, or the place in policy, behind an entry.
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
