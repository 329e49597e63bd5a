package agent

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// unattached are the endpoints that are on no interface: nothing of theirs is dropped by programs.
func unattached(states []dataplane.EndpointStatus) map[model.EndpointID]bool {
	all := map[model.EndpointID]bool{}
	for _, s := range states {
		if s.Ifindex == 0 {
			all[s.ID] = true
		}
	}
	return all
}

// lostAddrs are the addresses that an endpoint claims and does not own. unattached: it is on no interface.
func lostAddrs(id model.EndpointID, lost []calc.LostClaim, unattached bool) []inspect.LostAddr {
	var rows []inspect.LostAddr
	for _, l := range lost {
		if l.Endpoint != id {
			continue
		}
		l.Unattached = unattached
		row := inspect.LostAddr{Addr: l.Addr, Condition: string(l.Why), Reason: l.ForAuthor()}
		if l.Owner != (model.EndpointID{}) {
			row.Owner = l.Owner.String()
		}
		rows = append(rows, row)
	}
	return rows
}

// lostClaimEvents are Events for the owners of this node's pods that claim addresses of others. A pod that is being deleted loses its
// interface before it goes.
func lostClaimEvents(lost []calc.LostClaim, states []dataplane.EndpointStatus) []events.Item {
	var items []events.Item
	if len(lost) == 0 {
		return nil
	}
	without := unattached(states)
	for _, l := range lost {
		l.Unattached = without[l.Endpoint]
		if l.Local && !l.Terminating {
			items = append(items, events.Item{Local: true, Claim: true, Problem: validate.Problem{
				Ref:      validate.Ref{Kind: "Pod", Namespace: l.Endpoint.Namespace, Name: l.Endpoint.Name},
				Severity: validate.Warning, Reason: l.ForAuthor(),
			}})
		}
	}
	return slices.Clip(items)
}

// serviceClaimEvents are Events for the owners of Services that claim addresses of others.
func serviceClaimEvents(claims iter.Seq[calc.ServiceClaim]) iter.Seq[events.Item] {
	return func(yield func(events.Item) bool) {
		if claims == nil {
			return
		}
		for c := range claims {
			if !yield(events.Item{Claim: true, Problem: validate.Problem{
				Ref:      validate.Ref{Kind: "Service", Namespace: c.Service.Namespace, Name: c.Service.Name},
				Severity: validate.Warning, Field: "spec.externalIPs", Reason: c.ForAuthor(),
			}}) {
				return
			}
		}
	}
}
