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
	// Likewise of the rules of shadows, which are made after all others, so that their counts continue. They are held
	// until forgetStaged.
	staged map[oldRule]uint32
	kept   []uint32 // the numbers that were in staged
}

// oldRule is all that is known of a rule found in the kernel. Rules of both directions may have the same text.
type oldRule struct {
	text      string
	direction model.Direction
}

func newRuleNumbers() *ruleNumbers {
	return &ruleNumbers{Numbering: ids.New[model.RuleID](65535), old: map[oldRule]uint32{}, staged: map[oldRule]uint32{}}
}

// number returns the number of the rule, or 0 if there is none left.
func (r *ruleNumbers) number(id model.RuleID) uint32 {
	from := r.old
	if id.Staged {
		from = r.staged
	}
	if len(from) > 0 && !r.Has(id) {
		old := oldRule{NameText(id.String()), id.Direction}
		if num, ok := from[old]; ok {
			delete(from, old)
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
		if d, ok := model.StagedRule(names[num]); ok {
			r.staged[oldRule{names[num], d}] = num
			r.kept = append(r.kept, num)
			r.Hold(num)
		}
	}
}

// forgetStaged makes rules of shadows that none has named so far get numbers of their own.
func (r *ruleNumbers) forgetStaged() {
	for _, num := range r.kept {
		r.Drop(num)
	}
	clear(r.staged)
	r.kept = nil
}

// expect notes that a table in the kernel has the rule. A policy that names a rule with this text and direction gets num.
func (r *ruleNumbers) expect(text string, d model.Direction, num uint32) {
	r.old[oldRule{text, d}] = num
}

// forget makes rules that no policy has named so far get numbers of their own.
func (r *ruleNumbers) forget() { clear(r.old) }
