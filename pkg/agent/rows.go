package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/agent/wire"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// endpointRows joins what the graph wants with what the dataplane has.
func endpointRows(g *calc.Graph, d *bpfplane.BPF) []wire.EndpointRow {
	states := map[model.EndpointID]dataplane.EndpointStatus{}
	for _, s := range d.Endpoints() {
		states[s.ID] = s
	}
	rows, lost := []wire.EndpointRow{}, g.LostClaims()
	for _, ep := range g.LocalEndpoints() {
		s, ok := states[ep.ID]
		row := wire.EndpointRow{
			Namespace: ep.ID.Namespace, Name: ep.ID.Name, Interface: ep.Iface, Ifindex: s.Ifindex, Addrs: ep.Addrs, Attached: []wire.Attachment{},
			Ingress: direction(ep.Ingress, d.Detail(ep.ID), d), Egress: direction(ep.Egress, d.Detail(ep.ID), d), Error: s.Reason, Lost: lostAddrs(ep.ID, lost),
		}
		if !ok {
			row.Error = "not programmed yet"
		}
		rows = append(rows, row)
	}
	return rows
}

// closedRows are the interfaces that no endpoint has.
func closedRows(closed []closedInterface, local []*model.EndpointPolicy, node string) []wire.EndpointRow {
	var rows []wire.EndpointRow
	for _, i := range closed {
		if slices.ContainsFunc(local, func(ep *model.EndpointPolicy) bool { return ep.Iface == i.name }) {
			continue // since a moment
		}
		rows = append(rows, wire.EndpointRow{
			Interface: i.name, Ifindex: i.ifindex, Addrs: []netip.Addr{}, Attached: []wire.Attachment{},
			Ingress: wire.Direction{Policies: []string{}}, Egress: wire.Direction{Policies: []string{}},
			Condition: wire.ConditionClosed, Error: fmt.Sprintf("closed: no pod of node %q is known for it", node),
		})
	}
	return rows
}

func direction(p *model.DirectionPolicy, s bpfplane.Detail, d *bpfplane.BPF) wire.Direction {
	row := wire.Direction{Slot: s.Slots[p.Direction], Generation: s.Generations[p.Direction], Policies: []string{}}
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			row.Policies = append(row.Policies, t.Name+"/"+policy.Key.String())
		}
	}
	if program := d.Program(s.Tables[p.Direction]); program != nil {
		row.Rules = countTrue(program.Reached())
	}
	return row
}

func policyRows(g *calc.Graph) []wire.PolicyRow {
	byKey := map[model.PolicyKey]*wire.PolicyRow{}
	note := func(p *model.DirectionPolicy, count func(*wire.PolicyRow)) {
		for _, t := range p.Tiers {
			for _, policy := range t.Policies {
				row := byKey[policy.Key]
				if row == nil {
					_, kind := policy.Key.Kind.API()
					row = &wire.PolicyRow{Tier: t.Name, Kind: kind, Namespace: policy.Key.Namespace, Name: policy.Key.Name, Staged: policy.Staged}
					byKey[policy.Key] = row
				}
				count(row)
			}
		}
	}
	for _, ep := range g.LocalEndpoints() {
		note(ep.Ingress, func(r *wire.PolicyRow) { r.Ingress++ })
		note(ep.Egress, func(r *wire.PolicyRow) { r.Egress++ })
	}
	rows := []wire.PolicyRow{}
	for _, r := range byKey {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b wire.PolicyRow) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return rows
}

// setNames gives the words for a set by its number in the kernel.
func setNames(g *calc.Graph, d *bpfplane.BPF) func(uint32) string {
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

// attachments fills in where our programs are attached to the endpoints' interfaces. A link may go away while they are
// listed, as its interface does; what can be told of the others is told.
func attachments(rows []wire.EndpointRow, linkDir string) error {
	list, err := attach.ListPinned(linkDir)
	at := map[uint32]attach.Attachment{}
	for _, a := range list {
		at[a.Ifindex] = a
	}
	for i := range rows {
		a, ok := at[rows[i].Ifindex]
		if !ok {
			continue
		}
		rows[i].Attached = append(rows[i].Attached,
			attachment("tcx/ingress", bpf.MargayProgFromPod, a.Ingress), attachment("tcx/egress", bpf.MargayProgToPod, a.Egress))
	}
	if len(list) > 0 {
		return nil
	}
	return err
}

func attachment(hook, program string, s attach.LinkState) wire.Attachment {
	return wire.Attachment{
		Hook: hook, Program: program, Attached: s.Attached, Link: s.Link, ID: s.Program, Before: s.Before, After: s.After,
	}
}

// numberedSet is a set and its number in the kernel; 0: no rule there uses it.
type numberedSet struct {
	number uint32
	id     model.SetID
}

// setNumbers are all sets that rules in the kernel refer to, by number, after the reserved ones.
func setNumbers(d *bpfplane.BPF) []numberedSet {
	list := []numberedSet{{0, model.SetNodeAddrs}, {0, model.SetServiceAddrs}}
	for n, id := range d.Sets() {
		list = append(list, numberedSet{n, id})
	}
	slices.SortFunc(list, func(a, b numberedSet) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.id, b.id))
	})
	return list
}

func setRow(g *calc.Graph, d *bpfplane.BPF, s numberedSet) wire.SetRow {
	const some = 5
	row := wire.SetRow{Number: s.number, ID: string(s.id), Some: []string{}}
	members, ok := g.SetMembers(s.id)
	if ok {
		row.Text, _ = g.SetText(s.id)
	} else {
		row.Text, members = d.NetText(s.id), d.NetMembers(s.id)
	}
	row.Members = len(members)
	for _, m := range members[:min(len(members), some)] {
		row.Some = append(row.Some, memberText(m))
	}
	return row
}

func memberText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// problemRows joins what is wrong with objects and what is odd about how they fit together.
func problemRows(source []validate.Problem, graph []calc.Problem) []wire.ProblemRow {
	rows := []wire.ProblemRow{}
	for _, p := range source {
		rows = append(rows, wire.Problem(p))
	}
	for _, p := range graph {
		rows = append(rows, wire.GraphProblem(p))
	}
	return rows
}

func kindRows(kinds []syncer.KindStatus) []wire.KindRow {
	rows := make([]wire.KindRow, 0, len(kinds))
	for _, k := range kinds {
		rows = append(rows, wire.KindRow{Kind: k.Kind, State: k.State.String(), Required: k.Required, Listed: k.Listed,
			Since: k.Since, Objects: k.Objects, Error: k.Error})
	}
	return rows
}
