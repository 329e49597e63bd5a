package explain

import (
	"fmt"

	"github.com/margay-project/margay/pkg/model"
)

// reach follows which steps of a total order a packet can come to. Rules that match every packet end it, and tiers that deny
// without a rule that passes. Two rules that together match every packet are not seen: the steps behind them count as
// reached.
type reach struct {
	direction string
	ended     string // what decides every packet that comes so far; empty: nothing does
	inTier    string // the rule of the present tier that matches every packet; empty: none does
	passes    bool   // in the present tier, a rule may pass
}

// notReached is why no packet comes to the next step; empty if one may.
func (r *reach) notReached() string {
	why := r.ended
	if why == "" {
		why = r.inTier
	}
	if why == "" {
		return ""
	}
	return "not reached: " + why
}

// rules takes the packets through the rules of a policy that is enforced, or of a profile.
func (r *reach) rules(p *model.PolicyRules) {
	if r.notReached() != "" {
		return
	}
	for i := range p.Rules {
		rule := &p.Rules[i]
		if rule.Unmatchable != "" || rule.Action == model.Log {
			continue
		}
		r.passes = r.passes || rule.Action == model.Pass
		if rule.MatchesAll() {
			r.inTier = fmt.Sprintf("%s %s[%d] %s every packet", p.Key.ObjectText(), r.direction, rule.Index, verbs[rule.Action])
			return
		}
	}
}

var verbs = map[model.Action]string{model.Allow: "allows", model.Deny: "denies", model.Pass: "passes"}

// endOfTier ends the present tier. At least one of its policies must be enforced.
func (r *reach) endOfTier(t *model.TierPolicy) {
	if r.ended == "" && !r.passes {
		switch {
		case r.inTier != "":
			r.ended = r.inTier
		case t.Default != model.Pass:
			r.ended = "the end of tier " + t.Name + " denies"
		}
	}
	r.inTier, r.passes = "", false
}

// endOfProfile ends a profile: a rule of it that passes leads to the next one (D-5).
func (r *reach) endOfProfile() {
	if r.ended == "" && !r.passes {
		r.ended = r.inTier
	}
	r.inTier, r.passes = "", false
}
