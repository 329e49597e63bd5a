package record

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Inspector answers tools for a dataplane.
type Inspector struct{ of *Dataplane }

var _ inspect.Dataplane = Inspector{}

// Inspector returns the Inspector that answers tools for d.
func (d *Dataplane) Inspector() Inspector { return Inspector{d} }

// Name implements inspect.Dataplane.
func (Inspector) Name() string { return "record" }

// direction is the policy of one direction of an endpoint; nil: there is none.
func (i Inspector) direction(id model.EndpointID, d model.Direction) *model.DirectionPolicy {
	policy := i.of.endpoints[id]
	switch {
	case policy == nil:
		return nil
	case d == model.Ingress:
		return policy.Ingress
	}
	return policy.Egress
}

// Direction implements inspect.Dataplane.
func (i Inspector) Direction(id model.EndpointID, d model.Direction) inspect.Direction {
	return inspect.Direction{Rules: len(rows(i.direction(id, d), noSets))}
}

func noSets(model.SetID) (string, bool) { return "", false }

// Rules implements inspect.Dataplane.
func (i Inspector) Rules(id model.EndpointID, _ inspect.Counts, sets func(model.SetID) (string, bool)) ([]inspect.RuleRow, bool) {
	if i.of.endpoints[id] == nil {
		return nil, false
	}
	return append(rows(i.direction(id, model.Ingress), sets), rows(i.direction(id, model.Egress), sets)...), true
}

// rows are the rules of one direction in their order.
func rows(p *model.DirectionPolicy, sets func(model.SetID) (string, bool)) []inspect.RuleRow {
	list := []inspect.RuleRow{}
	if p == nil {
		return list
	}
	add := func(tier string, policy *model.PolicyRules) {
		for _, r := range policy.Rules {
			id := model.RuleID{Point: model.AtRule, Direction: p.Direction, Tier: tier, Policy: policy.Key, Index: r.Index}
			row := inspect.RuleRow{Direction: p.Direction.String(), Index: len(list), Rule: id.String(), Tier: tier,
				Object: inspect.Object{Namespace: policy.Key.Namespace, Name: policy.Key.Name}, Action: r.Action.String(), Match: matchText(r, sets),
				Reason: fmt.Sprintf("%s %s[%d]", policy.Key.ObjectText(), p.Direction, r.Index)}
			row.APIVersion, row.Kind = policy.Key.Kind.API()
			list = append(list, row)
		}
	}
	for _, tier := range p.Tiers {
		for _, policy := range tier.Policies {
			add(tier.Name, policy)
		}
	}
	for _, profile := range p.Profiles {
		add("", profile)
	}
	return list
}

// matchText says what a rule matches.
func matchText(r model.MatchRule, sets func(model.SetID) (string, bool)) string {
	var parts []string
	if r.Protocol != nil {
		parts = append(parts, model.ProtocolName(*r.Protocol))
	}
	parts = append(parts, sideText("from", r.Source, sets)...)
	parts = append(parts, sideText("to", r.Destination, sets)...)
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " ")
}

func sideText(word string, s model.Side, sets func(model.SetID) (string, bool)) []string {
	var parts []string
	for _, id := range s.In {
		text, ok := sets(id)
		if !ok {
			text = string(id)
		}
		parts = append(parts, fmt.Sprintf("%s {%s}", word, text))
	}
	if len(s.Nets) > 0 {
		parts = append(parts, fmt.Sprintf("%s %v", word, s.Nets))
	}
	if len(s.NotNets) > 0 {
		parts = append(parts, fmt.Sprintf("not %s %v", word, s.NotNets))
	}
	if s.Ports != nil {
		for _, p := range s.Ports.Ranges {
			parts = append(parts, fmt.Sprintf("%s port %d-%d", word, p.Lo, p.Hi))
		}
		for _, p := range s.Ports.Named {
			parts = append(parts, fmt.Sprintf("%s port %d of some", word, p.Port))
		}
	}
	return parts
}

// RuleCounts implements inspect.Dataplane: nothing counts.
func (Inspector) RuleCounts() (inspect.Counts, error) { return nil, nil }

// Sets implements inspect.Dataplane: sets have no numbers here.
func (Inspector) Sets() map[uint32]model.SetID { return nil }

// Staged implements inspect.Dataplane: nothing is evaluated.
func (Inspector) Staged(inspect.Counts) []inspect.StagedCount { return nil }

// CIDRs implements inspect.Dataplane: a CIDR list stays in its rule.
func (Inspector) CIDRs(id model.SetID) (string, []netip.Prefix) { return string(id), nil }

// NodeAddrs implements inspect.Dataplane.
func (Inspector) NodeAddrs() []netip.Addr { return nil }

// Attachments implements inspect.Dataplane: there are none.
func (Inspector) Attachments([]inspect.EndpointRow) error { return nil }
