package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// compile returns the policy of all pods as it is compiled, with its large parts.
func (l *linter) compile(o plan.Options) *plan.Compiler {
	c := plan.New(o, nil)
	for p := c.Update(l.changes); p.More; p = c.Update(model.Changes{}) {
	}
	return c
}

// refused finds the pods whose policy is not compiled, and returns the policies that it consists of, by direction.
func (l *linter) refused(c *plan.Compiler) map[policyDirection]bool {
	return l.noteRefused(c.Failed(), "")
}

// noteRefused notes these pods. One of the same policies that are refused for the same reason is only counted. where ends the reason.
func (l *linter) noteRefused(failed map[plan.EndpointDirection]error, where string) map[policyDirection]bool {
	of, pods := map[policyDirection]bool{}, map[string][]model.EndpointID{}
	for _, ep := range l.graph.LocalEndpoints() {
		for _, d := range []*model.DirectionPolicy{ep.Ingress, ep.Egress} {
			err := failed[plan.EndpointDirection{Endpoint: ep.ID, Direction: d.Direction}]
			if err == nil {
				continue
			}
			names, known := enforced(d)
			for _, key := range names {
				of[policyDirection{key, d.Direction}] = true
			}
			if known {
				text := refusal(d.Direction, names, err, where)
				pods[text] = append(pods[text], ep.ID)
			}
		}
	}
	for text, ids := range pods {
		if more := len(ids) - 1; more == 1 {
			text += " (so it is with 1 more pod)"
		} else if more > 1 {
			text += fmt.Sprintf(" (so it is with %d more pods)", more)
		}
		l.found[Finding{Rule: -1, Endpoint: slices.MinFunc(ids, model.EndpointID.Compare), Text: text}] = true
	}
	return of
}

// policyDirection is one direction of a policy.
type policyDirection struct {
	policy    model.PolicyKey
	direction model.Direction
}

// enforced returns the policies of a direction that are not staged. Not known: the graph has left out the rules of some. That is a limit of
// a namespace on a node, which all pods of the cluster may exceed though no node does.
func enforced(d *model.DirectionPolicy) (names []model.PolicyKey, known bool) {
	known = !slices.ContainsFunc(d.Profiles, func(p *model.PolicyRules) bool { return p.Refused != "" })
	for _, t := range d.Tiers {
		for _, p := range t.Policies {
			if !p.Staged {
				names, known = append(names, p.Key), known && p.Refused == ""
			}
		}
	}
	return names, known
}

// mostNames is how many policies a finding names.
const mostNames = 2

// refusal says that a direction's policy is not compiled.
func refusal(d model.Direction, names []model.PolicyKey, err error, where string) string {
	var texts []string
	for _, key := range names[:min(len(names), mostNames)] {
		texts = append(texts, key.ObjectText())
	}
	of := strings.Join(texts, ", ")
	switch {
	case len(names) == 0:
		of = "its profiles"
	case len(names) > mostNames:
		of += fmt.Sprintf(" and %d more", len(names)-mostNames)
	}
	state := "the pod keeps its last policy, or stays closed"
	if errors.Is(err, plan.ErrOwnAddresses) {
		state = "the pod is closed"
	}
	return fmt.Sprintf("%s policy of %s%s: %s: %s", d, of, where, err, state)
}

// shadowed finds rules that decide nothing on any pod they apply to. Of a table without cells it is not known which rules decide, and of
// policies that are refused on some pod neither.
func (l *linter) shadowed(c *plan.Compiler, refused map[policyDirection]bool) {
	decides, never := map[model.RuleID]bool{}, map[model.RuleID]bool{}
	for _, t := range c.Tables() {
		if t.Program.Shadow {
			continue
		}
		shadowed := map[model.RuleID]bool{}
		for _, id := range t.Shadowed() {
			shadowed[id] = true
		}
		for _, id := range t.Program.IDs {
			if id.Point != model.AtRule || id.Policy.Kind == model.KindProfile {
				continue
			}
			if shadowed[id] {
				never[id] = true
			} else {
				decides[id] = true
			}
		}
	}
	for id := range never {
		if !decides[id] && !refused[policyDirection{id.Policy, id.Direction}] {
			l.add(id.Policy, id.Direction, id.Index, "never decides: earlier rules match every packet that it could match")
		}
	}
}
