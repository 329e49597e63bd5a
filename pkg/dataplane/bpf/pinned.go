package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/ruletext"
	"github.com/margay-project/margay/pkg/model"
)

// EndpointRows are the local endpoints for tools. Of their policies they have those that have rules in the maps. ifaces gives
// interfaces their names; empty: not known.
func (s *PinnedState) EndpointRows(ifaces func(uint32) string) ([]inspect.EndpointRow, error) {
	rows := []inspect.EndpointRow{}
	var errs []error
	for _, ep := range s.endpoints {
		row := inspect.EndpointRow{Namespace: ep.ID.Namespace, Name: ep.ID.Name, Interface: ifaces(ep.Ifindex), Ifindex: ep.Ifindex,
			Addrs: append([]netip.Addr{}, ep.Addrs...), Sources: ep.Sources, Attached: []inspect.Attachment{}}
		var err1, err2 error
		row.Ingress, err1 = s.directionRow(ep, model.Ingress)
		row.Egress, err2 = s.directionRow(ep, model.Egress)
		errs = append(errs, err1, err2)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b inspect.EndpointRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return rows, errors.Join(append(errs, attachments(rows, s.maps.LinkDir()))...)
}

// directionRow returns the policy in force for one direction of an endpoint.
func (s *PinnedState) directionRow(ep PinnedEndpoint, d model.Direction) (inspect.Direction, error) {
	row := inspect.Direction{Policies: []string{}}
	row.Slot, row.Generation = bpfmaps.SplitPolicyWord(ep.words[d])
	policy, err := s.policy(ep, d)
	if err != nil {
		return row, err
	}
	row.Rules = ruletext.Reached(&policy.program)
	for _, id := range policiesIn(policy.program.IDs) {
		row.Policies = append(row.Policies, id.Tier+"/"+id.Policy.String())
	}
	return row, nil
}

// RuleRows are the ordered match tables of a local endpoint, with their counts.
func (s *PinnedState) RuleRows(id model.EndpointID) ([]inspect.RuleRow, error) {
	for _, ep := range s.endpoints {
		if ep.name != plan.NameText(id.String()) {
			continue
		}
		stats, err := s.maps.RuleStats.Below(1 << 16)
		counts := countsOf(stats)
		rows := []inspect.RuleRow{}
		errs := []error{err}
		for _, d := range []model.Direction{model.Ingress, model.Egress} {
			list, err := s.tableRows(ep, d, counts)
			rows, errs = append(rows, list...), append(errs, err)
		}
		return rows, errors.Join(errs...)
	}
	return nil, fmt.Errorf("no local endpoint %s is enforced; see margay show endpoints", id)
}

func (s *PinnedState) tableRows(ep PinnedEndpoint, d model.Direction, counts inspect.Counts) ([]inspect.RuleRow, error) {
	policy, err := s.policy(ep, d)
	if err != nil {
		return nil, err
	}
	var errs []error
	sets := func(n uint32) string {
		text, err := s.SetText(n)
		errs = append(errs, err)
		return cmp.Or(text, ruletext.Set(n))
	}
	rows := ruletext.Rows(&policy.program, d, sets, counts)
	for i, text := range policy.texts {
		if text != "" {
			rows[i].Rule, rows[i].Reason = text, text
		}
	}
	return rows, errors.Join(errs...)
}
