package agent

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// staged is what the staged policies that apply on this node would have decided otherwise.
func (a *API) staged(r *http.Request) (answer inspect.Answer, err error) {
	counts, err := a.Plane.RuleCounts() // takes a while, and the loop is not needed for it
	if err != nil {
		return answer, err
	}
	var all stagedRows
	err = a.Loop.Query(r.Context(), func(v View) { all = stagedOf(v.Graph, v.states, a.Plane.Staged(counts)) })
	answer.Staged = all.list(a.Flows)
	return answer, err
}

// stagedKey is one direction of a staged policy.
type stagedKey struct {
	policy    model.PolicyKey
	tier      string
	direction model.Direction
}

// text is the policy as records of flows name it.
func (k stagedKey) text() string { return k.tier + "/" + k.policy.String() }

type stagedRows map[stagedKey]*inspect.StagedRow

// stagedOf makes a row of each direction of a staged policy that applies to a local endpoint, with its counts.
func stagedOf(g *calc.Graph, states []dataplane.EndpointStatus, counts []inspect.StagedCount) stagedRows {
	why := map[model.EndpointID]string{}
	for _, s := range states {
		if why[s.ID] = s.Staged; s.Staged == "" && s.StagedPending {
			why[s.ID] = "they are being compiled"
		}
	}
	all := stagedRows{}
	for _, ep := range g.LocalEndpoints() {
		for _, p := range []*model.DirectionPolicy{ep.Ingress, ep.Egress} {
			for _, t := range p.Tiers {
				for _, policy := range t.Policies {
					if !policy.Staged {
						continue
					}
					row := all.row(stagedKey{policy.Key, t.Name, p.Direction})
					row.Endpoints++
					switch reason := why[ep.ID]; {
					case policy.Refused != "":
						row.NotEvaluated = policy.Refused
					case reason != "" && row.NotEvaluated == "":
						row.NotEvaluated = ep.ID.String() + ": " + reason
					}
				}
			}
		}
	}
	for _, c := range counts {
		row := all.row(stagedKey{c.Rule.Policy, c.Rule.Tier, c.Rule.Direction})
		if c.Allow {
			row.WouldAllow += c.Packets
		} else {
			row.WouldDeny += c.Packets
		}
	}
	return all
}

func (s stagedRows) row(k stagedKey) *inspect.StagedRow {
	row := s[k]
	if row == nil {
		_, kind := k.policy.Kind.API()
		row = &inspect.StagedRow{Tier: k.tier, Kind: kind, Namespace: k.policy.Namespace, Name: k.policy.Name, Direction: k.direction.String()}
		s[k] = row
	}
	return row
}

// list are the rows with their examples. hub may be nil.
func (s stagedRows) list(hub *flows.Hub) []inspect.StagedRow {
	list := []inspect.StagedRow{}
	for k, row := range s {
		row.Examples = []*flows.Record{}
		if hub != nil {
			row.Examples = append(row.Examples, hub.Examples.Of(k.text(), row.Direction)...)
		}
		list = append(list, *row)
	}
	slices.SortFunc(list, func(a, b inspect.StagedRow) int {
		return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Direction, a.Direction))
	})
	return list
}
