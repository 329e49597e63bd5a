package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// What follows answers from the pinned maps alone, while no agent runs: what is enforced, not what is desired.

// PinnedEndpoints are the local endpoints. Of their addresses only the first of each family is in the maps with them, and of
// their policies those that have rules there. ifaces gives interfaces their names; empty: not known.
func PinnedEndpoints(m *bpfmaps.Maps, ifaces func(uint32) string) ([]inspect.EndpointRow, error) {
	entries, err := pinnedEntries(m)
	if err != nil {
		return nil, err
	}
	rows := []inspect.EndpointRow{}
	var errs []error
	for _, e := range entries {
		row := inspect.EndpointRow{Interface: ifaces(e.Ifindex), Ifindex: e.Ifindex, Addrs: addrsIn(e), Attached: []inspect.Attachment{}}
		name, _, err1 := m.EndpointName(e.Ifindex)
		row.Namespace, row.Name, _ = strings.Cut(name, "/")
		var err2, err3 error
		row.Ingress, err2 = pinnedDirection(m, e.Ingress, model.Ingress)
		row.Egress, err3 = pinnedDirection(m, e.Egress, model.Egress)
		errs = append(errs, err1, err2, err3)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b inspect.EndpointRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows, errors.Join(append(errs, attachments(rows, m.LinkDir()))...)
}

// pinnedEntries are the endpoints that let packets pass.
func pinnedEntries(m *bpfmaps.Maps) ([]bpf.Endpoint, error) {
	e, err := m.OpenEndpoints()
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(e.List(), func(ep bpf.Endpoint) bool { return ep.Flags&bpf.EPReady == 0 })
	return list, e.Close()
}

func addrsIn(e bpf.Endpoint) []netip.Addr {
	addrs := []netip.Addr{}
	if e.Addr4 != [4]byte{} {
		addrs = append(addrs, netip.AddrFrom4(e.Addr4))
	}
	if e.Addr6 != [16]byte{} {
		addrs = append(addrs, netip.AddrFrom16(e.Addr6))
	}
	return addrs
}

// pinnedDirection is what is in force by a policy word.
func pinnedDirection(m *bpfmaps.Maps, word uint64, dir model.Direction) (inspect.Direction, error) {
	row := inspect.Direction{Policies: []string{}}
	row.Slot, row.Generation = bpfmaps.SplitPolicyWord(word)
	rules, err := m.ReadRules(row.Slot)
	if err != nil {
		return row, err
	}
	row.Rules = countTrue((&match.Program{Rules: rules}).Reached())
	for _, r := range rules {
		name, _, err := m.RuleName(r.Id)
		if err != nil {
			return row, err
		}
		id, ok := model.ParseRuleID(name, dir)
		policy := id.Tier + "/" + id.Policy.String()
		if ok && id.Tier != "" && !slices.Contains(row.Policies, policy) {
			row.Policies = append(row.Policies, policy)
		}
	}
	return row, nil
}

// PinnedRules are the ordered match tables of a local endpoint, with their counts.
func PinnedRules(m *bpfmaps.Maps, id model.EndpointID) ([]inspect.RuleRow, error) {
	entries, err := pinnedEntries(m)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name, _, err := m.EndpointName(e.Ifindex)
		if err != nil {
			return nil, err
		}
		if name != bpfmaps.NameText(bpfmaps.NewName(id.String())) {
			continue
		}
		stats, err := m.RuleStats(1 << 16)
		counts := countsOf(stats)
		rows := []inspect.RuleRow{}
		errs := []error{err}
		for dir, word := range [2]uint64{e.Ingress, e.Egress} {
			slot, _ := bpfmaps.SplitPolicyWord(word)
			list, err := pinnedTable(m, slot, model.Direction(dir), counts)
			rows, errs = append(rows, list...), append(errs, err)
		}
		return rows, errors.Join(errs...)
	}
	return nil, fmt.Errorf("no local endpoint %s is enforced; see margay show endpoints", id)
}

func pinnedTable(m *bpfmaps.Maps, slot uint32, dir model.Direction, counts inspect.Counts) ([]inspect.RuleRow, error) {
	rules, err := m.ReadRules(slot)
	errs := []error{err}
	sets := func(n uint32) string {
		name, ok, err := m.SetName(n)
		if errs = append(errs, err); !ok {
			return setText(n)
		}
		return name
	}
	program := &match.Program{Rules: rules, IDs: make([]model.RuleID, len(rules))}
	texts := make([]string, len(rules)) // of those that are no id: cut, or not there
	for i, r := range rules {
		name, _, err := m.RuleName(r.Id)
		errs = append(errs, err)
		var ok bool
		if program.IDs[i], ok = model.ParseRuleID(name, dir); !ok {
			texts[i] = cmp.Or(name, "a rule without a name")
		}
	}
	rows := programRows(program, dir, sets, counts)
	for i, text := range texts {
		if text != "" {
			rows[i].Rule, rows[i].Reason = text, text
		}
	}
	return rows, errors.Join(errs...)
}
