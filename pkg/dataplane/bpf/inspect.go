package bpf

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/ruletext"
	"github.com/margay-project/margay/pkg/model"
)

// Inspector answers tools for a dataplane: it reads what the parts of the dataplane have, and changes nothing.
type Inspector struct {
	kernel *kernel
	state  func() *state // the one in force, which is replaced whole when the dataplane is reopened
}

var _ inspect.Dataplane = Inspector{}

// Inspector returns the Inspector that answers tools for d.
func (d *BPF) Inspector() Inspector { return Inspector{d.kernel, func() *state { return d.state }} }

// Name implements inspect.Dataplane.
func (Inspector) Name() string { return "bpf" }

// Direction implements inspect.Dataplane.
func (i Inspector) Direction(id model.EndpointID, d model.Direction) inspect.Direction {
	detail := i.Detail(id)
	row := inspect.Direction{Slot: detail.Slots[d], Generation: detail.Generations[d]}
	if program := i.Program(detail.Tables[d]); program != nil {
		row.Rules = ruletext.Reached(program)
	}
	return row
}

// Rules implements inspect.Dataplane.
func (i Inspector) Rules(id model.EndpointID, counts inspect.Counts, sets func(model.SetID) (string, bool)) (rows []inspect.RuleRow, ok bool) {
	if ep := i.state().endpoints.roster.bound[id]; ep == nil || ep.policy == nil {
		return nil, false
	}
	names := func(n uint32) string {
		id, ok := i.Sets()[n]
		if !ok {
			return ruletext.Set(n)
		}
		if text, ok := sets(id); ok {
			return text
		}
		return ruletext.CIDRs(id, i.state().tables.netMembers(id))
	}
	rows = []inspect.RuleRow{}
	for dir, table := range i.Detail(id).Tables {
		if program := i.Program(table); program != nil {
			rows = append(rows, ruletext.Rows(program, model.Direction(dir), names, counts)...)
		}
	}
	return rows, true
}

// Detail is what the kernel has of one endpoint, for people. By model.Direction.
type Detail struct {
	Slots, Generations [2]uint32
	Tables             [2]table.ID
}

// Detail is that of an endpoint; zero if the kernel has nothing of it.
func (i Inspector) Detail(id model.EndpointID) Detail {
	ep := i.state().endpoints.roster.bound[id]
	if ep == nil {
		return Detail{}
	}
	detail := Detail{Generations: ep.gens, Tables: ep.tables}
	for dir, t := range ep.tables {
		detail.Slots[dir] = i.state().tables.slot(t)
	}
	return detail
}

// Program is the ordered match table of a table in the kernel; nil if there is none. It must not be changed.
func (i Inspector) Program(id table.ID) *match.Program { return i.state().tables.program(id) }

// RuleCounts implements inspect.Dataplane.
func (i Inspector) RuleCounts() (inspect.Counts, error) {
	stats, err := i.kernel.maps.RuleStats.Below(1 << 16)
	return countsOf(stats), err
}

func countsOf(stats map[uint32]bpf.Counter) inspect.Counts {
	counts := make(inspect.Counts, len(stats))
	for n, c := range stats {
		counts[n] = inspect.Count{Packets: c.Packets, Bytes: c.Bytes}
	}
	return counts
}

// Sets implements inspect.Dataplane.
func (i Inspector) Sets() map[uint32]model.SetID { return i.state().names.sets }

// CIDRs implements inspect.Dataplane.
func (i Inspector) CIDRs(id model.SetID) (text string, members []netip.Prefix) {
	members = i.state().tables.netMembers(id)
	return ruletext.CIDRs(id, members), members
}

// NodeAddrs implements inspect.Dataplane.
func (i Inspector) NodeAddrs() []netip.Addr { return i.kernel.host.Addrs() }

// Attachments implements inspect.Dataplane.
func (i Inspector) Attachments(rows []inspect.EndpointRow) error {
	return attachments(rows, i.kernel.maps.LinkDir())
}

// attachments fills in where programs are attached by links pinned in a directory. A link may disappear with its
// interface while they are listed. The others are filled in all the same.
func attachments(rows []inspect.EndpointRow, linkDir string) error {
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
			attachment(linkDir, "tcx/ingress", bpf.MargayProgFromPod, a.Ingress), attachment(linkDir, "tcx/egress", bpf.MargayProgToPod, a.Egress))
	}
	if len(list) > 0 {
		return nil
	}
	return err
}

func attachment(linkDir, hook, program string, s attach.LinkState) inspect.Attachment {
	a := inspect.Attachment{
		Hook: hook, Program: program, Attached: s.Attached, Link: s.Link, ID: s.Program, Before: s.Before, After: s.After,
	}
	if s.Before > 0 {
		a.BeforeOf = whose(linkDir, s.Overtakes)
	}
	return a
}
