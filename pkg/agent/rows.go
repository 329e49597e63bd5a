package agent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// endpointRows joins what the graph wants with what the dataplane has.
func endpointRows(g *calc.Graph, d *dataplane.BPF) []EndpointRow {
	states := map[model.EndpointID]dataplane.EndpointState{}
	for _, s := range d.Endpoints() {
		states[s.ID] = s
	}
	rows := []EndpointRow{}
	for _, ep := range g.LocalEndpoints() {
		s, ok := states[ep.ID]
		row := EndpointRow{
			Namespace: ep.ID.Namespace, Name: ep.ID.Name, Interface: ep.Iface, Ifindex: s.Ifindex, Addrs: ep.Addrs,
			Ingress: direction(ep.Ingress, s, d), Egress: direction(ep.Egress, s, d), Error: s.Error,
		}
		if !ok {
			row.Error = "not programmed yet"
		}
		if s.Ifindex != 0 {
			row.Attached = []string{"from_pod at tcx/ingress", "to_pod at tcx/egress"}
		}
		rows = append(rows, row)
	}
	return rows
}

func direction(p *model.DirectionPolicy, s dataplane.EndpointState, d *dataplane.BPF) Direction {
	row := Direction{Slot: s.Slots[p.Direction], Generation: s.Generations[p.Direction], Policies: []string{}}
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			row.Policies = append(row.Policies, t.Name+"/"+policy.Key.String())
		}
	}
	if program := d.Program(s.Tables[p.Direction]); program != nil {
		row.Rules = len(program.Rules)
	}
	return row
}

func policyRows(g *calc.Graph) []PolicyRow {
	byKey := map[model.PolicyKey]*PolicyRow{}
	note := func(p *model.DirectionPolicy, count func(*PolicyRow)) {
		for _, t := range p.Tiers {
			for _, policy := range t.Policies {
				row := byKey[policy.Key]
				if row == nil {
					_, kind := apiKind(policy.Key.Kind)
					row = &PolicyRow{Tier: t.Name, Kind: kind, Namespace: policy.Key.Namespace, Name: policy.Key.Name, Staged: policy.Staged}
					byKey[policy.Key] = row
				}
				count(row)
			}
		}
	}
	for _, ep := range g.LocalEndpoints() {
		note(ep.Ingress, func(r *PolicyRow) { r.Ingress++ })
		note(ep.Egress, func(r *PolicyRow) { r.Egress++ })
	}
	rows := []PolicyRow{}
	for _, r := range byKey {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b PolicyRow) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return rows
}

// ruleRows are the ordered match tables of one endpoint.
func ruleRows(g *calc.Graph, d *dataplane.BPF, id model.EndpointID) ([]RuleRow, error) {
	stats, err := d.Maps().RuleStats(1 << 16)
	if err != nil {
		return nil, err
	}
	names := setNames(g, d)
	rows := []RuleRow{}
	for _, s := range d.Endpoints() {
		if s.ID != id {
			continue
		}
		for dir, table := range s.Tables {
			program := d.Program(table)
			if program == nil {
				continue
			}
			for i, r := range program.Rules {
				count := stats[r.Id]
				rows = append(rows, RuleRow{
					Direction: model.Direction(dir).String(), Index: i, Rule: program.IDs[i].String(), Action: actionText(r.Action),
					Match: RuleText(r, model.Direction(dir) == model.Ingress, names), ID: r.Id,
					Packets: count.Packets, Bytes: count.Bytes,
				})
			}
		}
		return rows, nil
	}
	return nil, fmt.Errorf("no local endpoint %s; see margay show endpoints", id)
}

// setNames gives the words for a set by its number in the kernel.
func setNames(g *calc.Graph, d *dataplane.BPF) func(uint32) string {
	return func(n uint32) string {
		id, ok := d.SetID(n)
		if !ok {
			return fmt.Sprintf("set %d", n)
		}
		if text, ok := g.SetText(id); ok {
			return text
		}
		return d.NetText(id)
	}
}

// setRows are all sets that rules in the kernel refer to, and the reserved ones.
func setRows(g *calc.Graph, d *dataplane.BPF) []SetRow {
	const some = 5
	rows := []SetRow{}
	add := func(n uint32, id model.SetID) {
		row := SetRow{Number: n, ID: string(id), Some: []string{}}
		members, ok := g.SetMembers(id)
		if ok {
			row.Text, _ = g.SetText(id)
		} else {
			row.Text, members = d.NetText(id), d.NetMembers(id)
		}
		row.Members = len(members)
		for _, m := range members[:min(len(members), some)] {
			row.Some = append(row.Some, m.String())
		}
		rows = append(rows, row)
	}
	for n, id := range d.Sets() {
		add(n, id)
	}
	for _, id := range []model.SetID{model.SetServiceAddrs, model.SetNodeAddrs} {
		add(0, id)
	}
	slices.SortFunc(rows, func(a, b SetRow) int { return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.ID, b.ID)) })
	return rows
}
