package agent

import (
	"iter"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/events"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// lostAddrs are the addresses that an endpoint claims and does not own.
func lostAddrs(id model.EndpointID, lost []calc.LostClaim) []inspect.LostAddr {
	var rows []inspect.LostAddr
	for _, l := range lost {
		if l.Endpoint != id {
			continue
		}
		row := inspect.LostAddr{Addr: l.Addr, Condition: string(l.Why), Reason: l.Text()}
		if l.Owner != (model.EndpointID{}) {
			row.Owner = l.Owner.String()
		}
		rows = append(rows, row)
	}
	return rows
}

// lostClaimEvents are Events for the owners of this node's pods that claim addresses of others. A pod that is being deleted loses its
// interface before it goes.
func lostClaimEvents(lost []calc.LostClaim) []events.Item {
	var items []events.Item
	for _, l := range lost {
		if l.Local && !l.Terminating {
			items = append(items, events.Item{Local: true, Claim: true, Problem: validate.Problem{
				Ref:      validate.Ref{Kind: "Pod", Namespace: l.Endpoint.Namespace, Name: l.Endpoint.Name},
				Severity: validate.Warning, Reason: l.Text(),
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
				Severity: validate.Warning, Field: "spec.externalIPs", Reason: c.Text(),
			}}) {
				return
			}
		}
	}
}
