package lint

import (
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

// shadowed finds rules that decide nothing on any pod they apply to. Of a table without cells it is not known which rules decide.
func (l *linter) shadowed(c *plan.Compiler) {
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
		if !decides[id] {
			l.add(id.Policy, id.Direction, id.Index, "never decides: earlier rules match every packet that it could match")
		}
	}
}
