package plan

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/compile/ids"
	"github.com/margay-project/margay/pkg/model"
)

// ruleNumbers numbers the rules. A rule found in the kernel keeps its number when a policy first names it.
type ruleNumbers struct {
	*ids.Numbering[model.RuleID]
	old map[oldRule]uint32 // numbers of rules found in the kernel that no policy has named yet
}

// oldRule is all that is known of a rule found in the kernel. Rules of both directions may have the same text.
type oldRule struct {
	text      string
	direction model.Direction
}

func newRuleNumbers() *ruleNumbers {
	return &ruleNumbers{Numbering: ids.New[model.RuleID](65535), old: map[oldRule]uint32{}}
}

// number returns the number of the rule, or 0 if there is none left.
func (r *ruleNumbers) number(id model.RuleID) uint32 {
	if len(r.old) > 0 && !r.Has(id) {
		old := oldRule{NameText(id.String()), id.Direction}
		if num, ok := r.old[old]; ok {
			delete(r.old, old)
			r.Rename(num, id)
		}
	}
	return r.Number(id)
}

// adopt numbers the rules as in the kernel.
func (r *ruleNumbers) adopt(names map[uint32]string) {
	r.Claim(slices.Collect(maps.Keys(names)))
	for _, num := range slices.Sorted(maps.Keys(names)) {
		r.Assign(placeholder(num, names[num]), num)
		r.SetKnown(num)
	}
}

// expect notes that a table in the kernel has the rule. A policy that names a rule with this text and direction gets num.
func (r *ruleNumbers) expect(text string, d model.Direction, num uint32) {
	r.old[oldRule{text, d}] = num
}

// forget makes rules that no policy has named so far get numbers of their own.
func (r *ruleNumbers) forget() { clear(r.old) }
