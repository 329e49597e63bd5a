package iptables

import (
	"maps"
	"slices"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// staging is a rule of a staged policy, or the end of its tier, with the verdict that it would give.
type staging struct {
	rule  model.RuleID
	allow bool
}

// shadowTable returns the table of a direction of an endpoint as if its staged policies were enforced; nil: the endpoint has no
// shadow.
func shadowTable(c *plan.Compiler, id model.EndpointID, d model.Direction) *table.Table {
	view, ok := c.Endpoint(id.Shadow())
	if !ok {
		return nil
	}
	policy, at := view.Policy.Ingress, view.Ingress
	if d == model.Egress {
		policy, at = view.Policy.Egress, view.Egress
	}
	if staged.IsNone(policy) {
		return nil
	}
	return at
}

// staged returns the verdict of staged policies if it differs from the enforced one; nil: it is the same. first: the packet is the
// first of its flow, and is counted.
func (x *decider) staged(s *side, p model.Packet, allowed, first bool) *flows.Staged {
	at := shadowTable(x.state.plans.Compiler, s.id, s.direction)
	if at == nil {
		return nil
	}
	v := x.evaluate(at, s.remote, p)
	if v.Allow == allowed || !v.By.Staged {
		return nil
	}
	if first {
		x.d.events.count(staging{v.By, v.Allow})
	}
	r := &flows.Staged{Verdict: flows.Deny, Rule: strings.TrimPrefix(v.By.String(), "staged:"+s.direction.String()+":")}
	if v.Allow {
		r.Verdict = flows.Allow
	}
	r.Policy, _, _ = strings.Cut(r.Rule, "#")
	return r
}

// count counts the first packet of a flow.
func (e *events) count(s staging) {
	if e.staged == nil {
		e.staged = map[staging]uint64{}
	}
	e.staged[s]++
}

// Staged implements inspect.Dataplane. It counts the copies that were evaluated since the agent started.
func (i Inspector) Staged(inspect.Counts) []inspect.StagedCount {
	s := i.d.state
	there := map[staging]bool{}
	for id := range s.endpoints.bound {
		for _, direction := range []model.Direction{model.Ingress, model.Egress} {
			if at := shadowTable(s.plans.Compiler, id, direction); at != nil {
				addStaged(there, at)
			}
		}
	}
	var list []inspect.StagedCount
	for key := range there {
		list = append(list, inspect.StagedCount{Rule: key.rule, Allow: key.allow, Packets: i.d.events.staged[key]})
	}
	// A rule that was removed and comes back counts from 0.
	maps.DeleteFunc(i.d.events.staged, func(key staging, _ uint64) bool { return !there[key] })
	return slices.Clip(list)
}

// addStaged adds the rules of a shadow's table by which staged policies would decide otherwise.
func addStaged(to map[staging]bool, t *table.Table) {
	for n, rule := range t.Program.IDs {
		if action := t.Program.Rules[n].Action; rule.Staged && (action == bpf.RuleAllow || action == bpf.RuleDeny) {
			to[staging{rule, action == bpf.RuleAllow}] = true
		}
	}
}
