package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// endpointRows joins what the graph wants, which is local, with what the dataplane has. The names of policies are left to namePolicies.
func endpointRows(local []*model.EndpointPolicy, g *calc.Graph, states []dataplane.EndpointStatus, d inspect.Dataplane) []inspect.EndpointRow {
	byID := map[model.EndpointID]dataplane.EndpointStatus{}
	for _, s := range states {
		byID[s.ID] = s
	}
	rows, lost := []inspect.EndpointRow{}, g.LostClaims()
	for _, ep := range local {
		s, ok := byID[ep.ID]
		row := inspect.EndpointRow{
			Namespace: ep.ID.Namespace, Name: ep.ID.Name, Interface: ep.Iface, Ifindex: s.Ifindex, Addrs: ep.Addrs, Attached: []inspect.Attachment{},
			Ingress: d.Direction(ep.ID, model.Ingress), Egress: d.Direction(ep.ID, model.Egress), Error: shortfall(s), Lost: lostAddrs(ep.ID, lost, s.Ifindex == 0), Sources: ep.Sources, SourcesError: s.Sources,
		}
		switch {
		case !ok:
			row.Error = "not programmed yet"
		case s.NotInForce != "" || s.Misjudged.Text() != "" || s.Condition == dataplane.Pending && s.Reason != "":
			row.Condition = inspect.ConditionPending
		}
		rows = append(rows, row)
	}
	return rows
}

// closedRows are the interfaces that no endpoint has.
func closedRows(closed []closedInterface, local []*model.EndpointPolicy, node string) []inspect.EndpointRow {
	var rows []inspect.EndpointRow
	for _, i := range closed {
		if slices.ContainsFunc(local, func(ep *model.EndpointPolicy) bool { return ep.Iface == i.name }) {
			continue // since a moment
		}
		rows = append(rows, inspect.EndpointRow{
			Interface: i.name, Ifindex: i.ifindex, Addrs: []netip.Addr{}, Attached: []inspect.Attachment{},
			Ingress: inspect.Direction{Policies: []string{}}, Egress: inspect.Direction{Policies: []string{}},
			Condition: inspect.ConditionClosed, Error: "closed: " + i.reason(node),
		})
	}
	return rows
}

// namePolicies names the policies in the rows of endpoints, which begin with those of local. There may be a hundred endpoints with thousands
// of policies each, so the loop is not kept for it.
func namePolicies(rows []inspect.EndpointRow, local []*model.EndpointPolicy) {
	for i, ep := range local {
		rows[i].Ingress.Policies, rows[i].Egress.Policies = policyNames(ep.Ingress), policyNames(ep.Egress)
	}
}

func policyNames(p *model.DirectionPolicy) []string {
	names := []string{}
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			names = append(names, t.Name+"/"+policy.Key.String())
		}
	}
	return names
}

// numberedSet is a set and its number in the kernel; 0: no rule there uses it.
type numberedSet struct {
	number uint32
	id     model.SetID
}

// setNumbers are all sets that rules in the kernel refer to, by number, after the reserved ones.
func setNumbers(d inspect.Dataplane) []numberedSet {
	list := []numberedSet{{0, model.SetNodeAddrs}, {0, model.SetServiceAddrs}}
	for n, id := range d.Sets() {
		list = append(list, numberedSet{n, id})
	}
	slices.SortFunc(list, func(a, b numberedSet) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.id, b.id))
	})
	return list
}

// setRow describes a set. of has the namespace of each address that a pod owns: a set may have very many members.
func setRow(g *calc.Graph, d inspect.Dataplane, s numberedSet, of map[netip.Addr]string) inspect.SetRow {
	const some = 5
	row := inspect.SetRow{Number: s.number, ID: string(s.id), Some: []string{}, Namespaces: []string{}}
	members, ok := g.SetMembers(s.id)
	if ok {
		row.Text, _ = g.SetText(s.id)
	} else {
		row.Text, members = d.CIDRs(s.id)
	}
	row.Members = len(members)
	for _, m := range members[:min(len(members), some)] {
		row.Some = append(row.Some, memberText(m))
	}
	namespaces := map[string]struct{}{}
	for _, m := range members {
		if namespace, ok := of[m.Addr()]; ok && m.IsSingleIP() {
			namespaces[namespace] = struct{}{}
		}
	}
	row.Namespaces = slices.AppendSeq(row.Namespaces, maps.Keys(namespaces))
	slices.Sort(row.Namespaces)
	return row
}

func memberText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// problemRows joins the problems of single objects with those of objects that do not fit together.
func problemRows(source []validate.Problem, graph []calc.Problem) []inspect.ProblemRow {
	all := []inspect.ProblemRow{}
	for _, p := range source {
		all = append(all, rows.Problem(p))
	}
	for _, p := range graph {
		all = append(all, rows.GraphProblem(p))
	}
	return all
}

func kindRows(kinds []syncer.KindStatus) []inspect.KindRow {
	rows := make([]inspect.KindRow, 0, len(kinds))
	for _, k := range kinds {
		rows = append(rows, inspect.KindRow{Kind: k.Kind, State: k.State.String(), Required: k.Required, Listed: k.Listed,
			Since: k.Since, Objects: k.Objects, Revision: k.Revision, Read: k.Read, NotRead: k.NotRead, Error: k.Error})
	}
	return rows
}
