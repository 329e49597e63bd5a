package iptables

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/ruletext"
	"github.com/margay-project/margay/pkg/model"
)

// Inspector answers queries about a dataplane: it reads the state of its parts and changes nothing. inspect.Dataplane defines which
// goroutine may call which method.
type Inspector struct{ d *IPTables }

var _ inspect.Dataplane = Inspector{}

// Inspector returns the Inspector of d.
func (d *IPTables) Inspector() Inspector { return Inspector{d} }

// Name implements inspect.Dataplane: "iptables-legacy" or "iptables-nft".
func (i Inspector) Name() string { return "iptables-" + string(i.d.kernel.Tools.Backend) }

// at returns the tables of an endpoint, by model.Direction; not ok: there is no such endpoint.
func (i Inspector) at(id model.EndpointID) (tables [2]table.ID, ok bool) {
	ep := i.d.state.endpoints.bound[id]
	if ep == nil {
		return tables, false
	}
	return ep.tables, true
}

// program is the match table of a table that judges an endpoint; nil: there is none.
func (i Inspector) program(id table.ID) (*match.Program, uint32) {
	at := i.d.state.slots.list[id]
	if at == nil {
		return nil, 0
	}
	return at.table.Program, at.number
}

// Direction implements inspect.Dataplane.
func (i Inspector) Direction(id model.EndpointID, d model.Direction) inspect.Direction {
	tables, _ := i.at(id)
	program, number := i.program(tables[d])
	if program == nil {
		return inspect.Direction{}
	}
	return inspect.Direction{Slot: number, Generation: i.d.state.static.generation.number, Rules: ruletext.Reached(program)}
}

// Rules implements inspect.Dataplane.
func (i Inspector) Rules(id model.EndpointID, counts inspect.Counts, sets func(model.SetID) (string, bool)) (rows []inspect.RuleRow, ok bool) {
	tables, ok := i.at(id)
	if !ok {
		return nil, false
	}
	names := func(n uint32) string {
		id, ok := i.d.state.names.sets[n]
		if !ok {
			return ruletext.Set(n)
		}
		if text, ok := sets(id); ok {
			return text
		}
		return ruletext.CIDRs(id, i.netMembers(id))
	}
	rows = []inspect.RuleRow{}
	for dir, t := range tables {
		if program, _ := i.program(t); program != nil {
			rows = append(rows, ruletext.Rows(program, model.Direction(dir), names, counts)...)
		}
	}
	return rows, true
}

// RuleCounts implements inspect.Dataplane.
func (i Inspector) RuleCounts() (inspect.Counts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	return i.d.state.slots.counts(ctx)
}

// Sets implements inspect.Dataplane.
func (i Inspector) Sets() map[uint32]model.SetID { return i.d.state.names.sets }

// CIDRs implements inspect.Dataplane.
func (i Inspector) CIDRs(id model.SetID) (text string, members []netip.Prefix) {
	members = i.netMembers(id)
	return ruletext.CIDRs(id, members), members
}

// netMembers returns the prefixes of a set that stands for a CIDR list of rules; nil: the set is of another kind.
func (i Inspector) netMembers(id model.SetID) []netip.Prefix {
	for _, n := range slices.Sorted(maps.Keys(i.d.state.slots.list)) {
		if members, ok := i.d.state.slots.list[n].table.Program.NetSets[id]; ok {
			return members
		}
	}
	return nil
}

// NodeAddrs implements inspect.Dataplane.
func (i Inspector) NodeAddrs() []netip.Addr { return i.d.kernel.Node.Addrs() }

// Attachments implements inspect.Dataplane: packets of every interface with the prefix come to the same chain.
func (i Inspector) Attachments(rows []inspect.EndpointRow) error {
	names := i.d.enforcing.Load()
	if names == nil {
		return nil
	}
	for n := range rows {
		if rows[n].Ifindex != 0 {
			rows[n].Attached = append(rows[n].Attached, inspect.Attachment{Hook: "mangle/FORWARD", Program: names.Chain("FORWARD"), Attached: true})
		}
	}
	return nil
}
