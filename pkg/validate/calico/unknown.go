package calico

import (
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// An unknown field in an object that a datastore has checked is a field of a newer version of Calico. It may be a further
// condition, or name further traffic to deny, so the rule or policy that has it fails closed (semantics §12).

// inRules reports whether the path leads into a rule.
func inRules(path string) bool {
	return strings.HasPrefix(path, ingressRules.path+"[") || strings.HasPrefix(path, egressRules.path+"[")
}

// unknownOutsideRules is the first field of the object that is not known and belongs to no rule.
func (c *conversion) unknownOutsideRules() (path string, found bool) {
	i := slices.IndexFunc(c.unknown, func(path string) bool { return !inRules(path) })
	if i < 0 {
		return "", false
	}
	return c.unknown[i], true
}

// unknownField is the first field of the rule that is not known. The metadata of a rule decides nothing.
func (c ruleAt) unknownField() (path string, found bool) {
	if len(c.unknown) == 0 {
		return "", false
	}
	rule := element(c.list.path, c.index) + "."
	i := slices.IndexFunc(c.unknown, func(path string) bool {
		return strings.HasPrefix(path, rule) && !strings.HasPrefix(path, rule+"metadata.")
	})
	if i < 0 {
		return "", false
	}
	return c.unknown[i], true
}

// failClosed returns what stands for a rule of which the field at path is not known.
func (c ruleAt) failClosed(m model.Rule, path string) model.Rule {
	_, all := c.unknownOutsideRules() // is reported instead
	report := func(format string, args ...any) {
		if c.OK() && !all {
			c.Add(validate.RulesLeftOut, path, format, args...)
		}
	}
	switch m.Action {
	case model.Deny, model.Pass:
		report("unknown field; the rule denies all %s, because its action is %s", c.list.direction(), m.Action)
		return model.Rule{Action: model.Deny, Index: m.Index, Name: m.Name}
	case model.Allow:
		report("unknown field; the rule allows nothing")
	default:
		report("unknown field; the rule is left out")
	}
	m.Unmatchable = "its field " + path + " is not known here"
	return m
}

// close makes the policy deny everything in its directions, if a field that is not known belongs to no rule. Nil stays nil.
func (c *conversion) close(p *model.Policy) {
	path, unknown := c.unknownOutsideRules()
	if p == nil || !unknown {
		return
	}
	c.Add(validate.RulesLeftOut, path, "unknown field; the policy denies everything in its directions")
	deny := []model.Rule{{Action: model.Deny}}
	if p.AppliesIngress {
		p.Ingress = deny
	}
	if p.AppliesEgress {
		p.Egress = deny
	}
}

// usedWithout reports fields of an object that is used without them: there is nothing that it could close.
func usedWithout(rep *validate.Report, o *Object, what string) {
	if len(o.unknown) > 0 && rep.OK() {
		rep.Add(validate.RulesLeftOut, o.unknown[0], "unknown field; the %s is used without it", what)
	}
}
