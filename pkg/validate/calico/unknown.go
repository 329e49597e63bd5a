package calico

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// An unknown field in an object that a datastore has checked is one of a newer version of Calico, and so is a value that is not
// known where the API has a list of them. Either may be a further condition, or name further traffic to deny, so the rule or
// policy that has it fails closed (semantics §12).

// newer is a field or value of a stored object that is not known here.
type newer struct {
	path string
	what string // in words
}

const unknownField = "unknown field"

// inRules reports whether the path leads into a rule.
func inRules(path string) bool {
	return strings.HasPrefix(path, ingressRules.path+"[") || strings.HasPrefix(path, egressRules.path+"[")
}

// newerOutsideRules is the first thing that is not known and belongs to no rule.
func (c *conversion) newerOutsideRules() (newer, bool) {
	if i := slices.IndexFunc(c.unknown, func(path string) bool { return !inRules(path) }); i >= 0 {
		return newer{c.unknown[i], unknownField}, true
	}
	return c.newerType, c.newerType != newer{}
}

// unknownField is the first field of the rule that is not known. The metadata of a rule decides nothing.
func (c ruleAt) unknownField() (newer, bool) {
	if len(c.unknown) == 0 {
		return newer{}, false
	}
	rule := element(c.list.path, c.index) + "."
	i := slices.IndexFunc(c.unknown, func(path string) bool {
		return strings.HasPrefix(path, rule) && !strings.HasPrefix(path, rule+"metadata.")
	})
	if i < 0 {
		return newer{}, false
	}
	return newer{c.unknown[i], unknownField}, true
}

// oneOf is the name that a text of a stored object means. The CRDs of old did not check the case of its letters, and Felix ignores it.
func oneOf(text string, names ...string) string {
	if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, text) }); i >= 0 {
		return names[i]
	}
	return text
}

// action reads the action of a rule. One that is not known may be one that denies.
func (c ruleAt) action(text string) (a model.Action, wrong newer) {
	if c.stored {
		text = oneOf(text, "Allow", "Deny", "Pass", "Log")
	}
	switch a = actions[text]; {
	case a != 0:
		return a, newer{}
	case c.stored && text != "":
		return model.Deny, newer{c.path("action"), fmt.Sprintf("the action %q is not known", text)}
	}
	c.reject(c.path("action"), "%q must be Allow, Deny, Pass or Log", text)
	return 0, newer{}
}

// protocol is the name of a protocol that is not known, in a stored object.
func (c ruleAt) newerProtocol(field string, s *Scalar) newer {
	if s == nil || !c.stored || !s.quoted || !isName(s.text) {
		return newer{}
	}
	if _, wrong := s.protocol(); wrong == "" {
		return newer{}
	}
	return newer{c.path(field), fmt.Sprintf("the protocol %q is not known", s.text)}
}

// isName reports whether a text may be a name rather than a number.
func isName(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' })
}

// failClosed returns what stands for a rule that has something which is not known.
func (c ruleAt) failClosed(m model.Rule, has newer) model.Rule {
	_, all := c.newerOutsideRules() // is reported instead
	report := func(format string, args ...any) {
		if c.OK() && !all {
			c.Add(validate.RulesLeftOut, has.path, has.what+"; "+format, args...)
		}
	}
	switch m.Action {
	case model.Deny, model.Pass:
		if strings.HasSuffix(has.path, "].action") {
			report("the rule denies all %s", c.list.direction())
		} else {
			report("the rule denies all %s, because its action is %s", c.list.direction(), m.Action)
		}
		return model.Rule{Action: model.Deny, Index: m.Index, Name: m.Name}
	case model.Allow:
		report("the rule allows nothing")
	default:
		report("the rule is left out")
	}
	m.Unmatchable = has.path + ": " + has.what
	return m
}

// close makes the policy deny everything in its directions, if something that is not known belongs to no rule. Nil stays nil.
func (c *conversion) close(p *model.Policy) {
	has, found := c.newerOutsideRules()
	if p == nil || !found {
		return
	}
	c.Add(validate.RulesLeftOut, has.path, "%s; the policy denies everything in its directions", has.what)
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
