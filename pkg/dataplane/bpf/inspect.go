package bpf

import (
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Inspector answers tools for a dataplane.
type Inspector struct{ of *BPF }

var _ inspect.Dataplane = Inspector{}

// Inspector returns what answers tools for d.
func (d *BPF) Inspector() Inspector { return Inspector{d} }

// Name implements inspect.Dataplane.
func (Inspector) Name() string { return "bpf" }

// Direction implements inspect.Dataplane.
func (i Inspector) Direction(id model.EndpointID, d model.Direction) inspect.Direction {
	detail := i.of.Detail(id)
	row := inspect.Direction{Slot: detail.Slots[d], Generation: detail.Generations[d]}
	if program := i.of.Program(detail.Tables[d]); program != nil {
		row.Rules = countTrue(program.Reached())
	}
	return row
}

// Rules implements inspect.Dataplane.
func (i Inspector) Rules(id model.EndpointID, counts inspect.Counts, sets func(model.SetID) (string, bool)) (rows []inspect.RuleRow, ok bool) {
	if ep := i.of.state.endpoints.bound[id]; ep == nil || ep.policy == nil {
		return nil, false
	}
	names := func(n uint32) string {
		id, ok := i.of.SetID(n)
		if !ok {
			return setText(n)
		}
		if text, ok := sets(id); ok {
			return text
		}
		return i.of.NetText(id)
	}
	rows = []inspect.RuleRow{}
	for dir, table := range i.of.Detail(id).Tables {
		if program := i.of.Program(table); program != nil {
			rows = append(rows, programRows(program, model.Direction(dir), names, counts)...)
		}
	}
	return rows, true
}

// RuleCounts implements inspect.Dataplane.
func (i Inspector) RuleCounts() (inspect.Counts, error) {
	stats, err := i.of.kernel.maps.RuleStats.Below(1 << 16)
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
func (i Inspector) Sets() map[uint32]model.SetID { return i.of.Sets() }

// CIDRs implements inspect.Dataplane.
func (i Inspector) CIDRs(id model.SetID) (text string, members []netip.Prefix) {
	return i.of.NetText(id), i.of.NetMembers(id)
}

// NodeAddrs implements inspect.Dataplane.
func (i Inspector) NodeAddrs() []netip.Addr { return i.of.kernel.host.Addrs() }

// Attachments implements inspect.Dataplane.
func (i Inspector) Attachments(rows []inspect.EndpointRow) error {
	return attachments(rows, i.of.kernel.maps.LinkDir())
}

// attachments fills in where programs are attached by links pinned in a directory. A link may go away while they are
// listed, as its interface does; what is known of the others is filled in.
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
			attachment("tcx/ingress", bpf.MargayProgFromPod, a.Ingress), attachment("tcx/egress", bpf.MargayProgToPod, a.Egress))
	}
	if len(list) > 0 {
		return nil
	}
	return err
}

func attachment(hook, program string, s attach.LinkState) inspect.Attachment {
	return inspect.Attachment{
		Hook: hook, Program: program, Attached: s.Attached, Link: s.Link, ID: s.Program, Before: s.Before, After: s.After,
	}
}
