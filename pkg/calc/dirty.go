package calc

import (
	"iter"

	"github.com/margay-project/margay/pkg/model"
)

// dirty lists the objects that Flush still has to look at again. It is empty between flushes.
type dirty struct {
	selections map[*policySelection]struct{} // of the local index: matching some group or none may have changed
	policies   map[*policy]*arrived          // may have become active or inactive, or changed; nil: has the rules that it had
	profiles   map[string]*arrived           // likewise
	rulesets   map[*ruleset]struct{}         // to be built again
	groups     map[*localGroup]struct{}      // of the local index: matched by other policies, or by changed ones
	endpoints  map[model.EndpointID]struct{} // local ones that came, changed or left
}

// arrived is what of a policy or profile has come since the last flush.
type arrived struct {
	policy *model.Policy   // of a policy, which may be packed
	plain  [2][]model.Rule // of a profile, by direction
	gone   bool            // it is deleted
}

// rules are the rules that have come, by direction.
func (a *arrived) rules() [2][]model.Rule {
	if a.policy != nil {
		return a.policy.Rules()
	}
	return a.plain
}

func (a *arrived) isGone() bool { return a != nil && a.gone }

func newDirty() dirty {
	return dirty{
		selections: map[*policySelection]struct{}{},
		policies:   map[*policy]*arrived{},
		profiles:   map[string]*arrived{},
		rulesets:   map[*ruleset]struct{}{},
		groups:     map[*localGroup]struct{}{},
		endpoints:  map[model.EndpointID]struct{}{},
	}
}

// touch has groups of the local index looked at again.
func (d *dirty) touch(groups iter.Seq[*localGroup]) {
	for gr := range groups {
		d.groups[gr] = struct{}{}
	}
}

// policy has a policy looked at again, whose rules may have arrived.
func (d *dirty) policy(p *policy) { lookAgain(d.policies, p) }

// profile does so for a profile.
func (d *dirty) profile(name string) { lookAgain(d.profiles, name) }

// lookAgain enters a key. Rules that have arrived for it stay.
func lookAgain[K comparable](list map[K]*arrived, key K) {
	if _, ok := list[key]; !ok {
		list[key] = nil
	}
}

// policyRules returns the rules of a policy by direction. They must not be changed.
func (d *dirty) policyRules(p *policy) [2][]model.Rule { return listsOf(d.policySource(p)) }

// profileRules does so for a profile.
func (d *dirty) profileRules(p *profile) [2][]model.Rule { return listsOf(d.profileSource(p)) }

// policySource returns the rules of a policy: packed, or by direction as they have arrived.
func (d *dirty) policySource(p *policy) (packedRules, [2][]model.Rule) {
	if now := d.policies[p]; now != nil {
		return packedRules{}, now.rules()
	}
	return p.source, [2][]model.Rule{}
}

// profileSource does so for a profile.
func (d *dirty) profileSource(p *profile) (packedRules, [2][]model.Rule) {
	if now := d.profiles[p.name]; now != nil {
		return packedRules{}, now.rules()
	}
	return p.source.unboxed(), [2][]model.Rule{}
}

// listsOf returns rules by direction, whether they are packed or have arrived.
func listsOf(source packedRules, arrived [2][]model.Rule) [2][]model.Rule {
	if source.text != nil {
		return source.lists()
	}
	return arrived
}

func (d *dirty) reset() {
	empty(&d.selections)
	empty(&d.policies)
	empty(&d.profiles)
	empty(&d.rulesets)
	empty(&d.groups)
	empty(&d.endpoints)
}
