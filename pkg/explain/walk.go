// Package explain says why a packet is allowed or denied: it walks the policy of each side as semantics.md tells it,
// remembers every tier, policy and rule it considered, and names what decided. It is pure.
package explain

import (
	"github.com/margay-project/margay/pkg/model"
)

// Trace is the walk through one side's policy.
type Trace struct {
	Verdict model.Verdict
	Tiers   []Tier // in the order considered; nothing comes after the one that decided
}

// Tier is one tier as it was considered. The profiles come last, as a tier without a name.
type Tier struct {
	Name     string
	Policies []Policy
	End      string // what the end of the tier did; empty if it was not reached
}

// Policy is one policy or profile as it was considered.
type Policy struct {
	Key    model.PolicyKey
	Staged bool
	Rules  []Rule
}

// Rule is one rule as it was considered.
type Rule struct {
	Index    int    // of the API object's rule
	Name     string // as the object calls it; may be empty
	Action   model.Action
	Mismatch *Mismatch // the first clause the packet does not fit; nil: it matched
}

// Walk judges one packet by one direction's policy.
func Walk(p *model.DirectionPolicy, pkt model.Packet, sets Sets) Trace {
	w := walk{pkt: pkt, sets: sets, dir: p.Direction}
	for _, t := range p.Tiers {
		if w.tier(t) {
			return w.trace
		}
	}
	w.profiles(p.Profiles)
	return w.trace
}

type walk struct {
	pkt   model.Packet
	sets  Sets
	dir   model.Direction
	trace Trace
}

func (w *walk) decide(allow bool, by model.RuleID) {
	w.trace.Verdict.Allow, w.trace.Verdict.By = allow, by
}

// tier reports whether the tier decided.
func (w *walk) tier(t model.TierPolicy) bool {
	seen := Tier{Name: t.Name}
	isolating := model.PolicyKey{}
	defer func() { w.trace.Tiers = append(w.trace.Tiers, seen) }()
	for _, p := range t.Policies {
		if p.Staged {
			seen.Policies = append(seen.Policies, Policy{Key: p.Key, Staged: true})
			continue
		}
		if isolating == (model.PolicyKey{}) {
			isolating = p.Key
		}
		considered, action := w.rules(t.Name, p)
		seen.Policies = append(seen.Policies, considered)
		switch action {
		case model.Allow, model.Deny:
			return true
		case model.Pass:
			return false
		}
	}
	if isolating == (model.PolicyKey{}) {
		return false
	}
	end := model.RuleID{Point: model.AtEndOfTier, Direction: w.dir, Tier: t.Name, Policy: isolating}
	if t.Default == model.Pass {
		seen.End = "passes"
		w.trace.Verdict.Passed = append(w.trace.Verdict.Passed, end)
		return false
	}
	seen.End = "denies"
	w.decide(false, end)
	return true
}

// rules considers the rules of one policy in order and returns the action that ended it; 0: none did.
func (w *walk) rules(tier string, p *model.PolicyRules) (Policy, model.Action) {
	seen := Policy{Key: p.Key}
	for i := range p.Rules {
		r := &p.Rules[i]
		why := mismatch(r, w.pkt, w.sets)
		seen.Rules = append(seen.Rules, Rule{Index: r.Index, Name: r.Name, Action: r.Action, Mismatch: why})
		if why != nil {
			continue
		}
		id := model.RuleID{Point: model.AtRule, Direction: w.dir, Tier: tier, Policy: p.Key, Index: r.Index}
		switch r.Action {
		case model.Log:
			w.trace.Verdict.Logged = append(w.trace.Verdict.Logged, id)
			continue
		case model.Pass:
			w.trace.Verdict.Passed = append(w.trace.Verdict.Passed, id)
		default:
			w.decide(r.Action == model.Allow, id)
		}
		return seen, r.Action
	}
	return seen, 0
}

func (w *walk) profiles(profiles []*model.PolicyRules) {
	seen := Tier{}
	for _, p := range profiles {
		considered, action := w.rules("", p)
		seen.Policies = append(seen.Policies, considered)
		if action == model.Allow || action == model.Deny {
			w.trace.Tiers = append(w.trace.Tiers, seen)
			return
		}
	}
	seen.End = "denies"
	w.trace.Tiers = append(w.trace.Tiers, seen)
	w.decide(false, model.RuleID{Point: model.AtNoProfile, Direction: w.dir})
}
