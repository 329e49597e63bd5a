package validate

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// closures are the parts of a stored NetworkPolicy that allow nothing, because they have something of a newer version of the API.
type closures struct {
	rules          map[string]*field.Error // by the path of the rule: why
	policy         *field.Error            // why all of it; nil: not all of it
	bothDirections bool                    // it has a policy type that may mean either
	value          *field.Error            // the first value in a label selector that no label can have; nil: there is none
}

// closuresOf are those of fields that are not known. An empty path stands for fields anywhere.
func closuresOf(unknown []string) closures {
	c := closures{rules: map[string]*field.Error{}}
	for _, path := range unknown {
		c.add(path, "unknown field")
	}
	return c
}

// add notes the first reason of each rule, and of the policy.
func (c *closures) add(path, why string) {
	err := &field.Error{Field: path, Detail: why}
	if rule, ok := ruleOf(path); ok {
		if c.rules[rule] == nil {
			c.rules[rule] = err
		}
	} else if c.policy == nil {
		c.policy = err
	}
}

// ruleOf is the path of the rule that has the field; not ok: no rule has it.
func ruleOf(path string) (rule string, ok bool) {
	if !strings.HasPrefix(path, "spec.ingress[") && !strings.HasPrefix(path, "spec.egress[") {
		return "", false
	}
	return path[:strings.IndexByte(path, ']')+1], true
}

// values adds the closures of values that are not known, and returns the other errors. A value of a label selector that no label can
// have is understood, and only warned of. In a rule that is closed anyway none
// counts: without the field that is not known, a peer may say nothing.
func (c *closures) values(errs field.ErrorList, spec *networkingv1.NetworkPolicySpec) field.ErrorList {
	for i, t := range spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			at := field.NewPath("spec", "policyTypes").Index(i)
			c.add(at.String(), strconv.Quote(clip(string(t)))+" is not known")
			c.bothDirections = true
		}
	}
	for _, err := range errs {
		if _, ok := ruleOf(err.Field); ok && (err.Type == field.ErrorTypeNotSupported || strings.HasSuffix(err.Field, ".operator")) {
			c.add(err.Field, err.ErrorBody())
		}
	}
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		rule, ok := ruleOf(err.Field)
		if closed := ok && c.rules[rule] != nil; !closed && IsLabelValue(err) {
			c.value = cmp.Or(c.value, err)
			return true
		}
		return ok && c.rules[rule] != nil || !ok && strings.HasPrefix(err.Field, "spec.policyTypes") && c.bothDirections
	})
}

// closedRule is what replaces a rule of the API that allows nothing; not ok: it is as it is written.
func (c policyConversion) closedRule(index int, path place) (model.Rule, bool) {
	if len(c.closed.rules) == 0 {
		return model.Rule{}, false
	}
	err := c.closed.rules[path().String()]
	if err == nil {
		return model.Rule{}, false
	}
	c.Add(RulesLeftOut, err.Field, "%s; the rule allows nothing", err.Detail)
	return model.Rule{Action: model.Allow, Index: index, Unmatchable: clip(selector.Printable(err.Field + ": " + err.Detail))}, true
}
