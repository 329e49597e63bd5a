package calc

import (
	"cmp"
	"iter"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// policy is one policy of the datastore.
type policy struct {
	key       model.PolicyKey
	sortKey   string
	value     *model.Policy // nil: it was just deleted
	selection *selection    // in the local index
	rules     [2]*ruleset   // by direction; nil where it does not apply on this node
}

// profile is one profile of the datastore. Its labels are with the label indexes.
type profile struct {
	value *model.Profile // nil: it was just deleted
	rules [2]*ruleset    // by direction; nil where it has none or no endpoint of this node names it
}

// ruleset is the rules of an active policy or profile for one direction. Its rules are replaced when they change.
type ruleset struct {
	policy    *policy // nil: it belongs to the profile named by key
	key       model.PolicyKey
	staged    bool
	direction model.Direction
	source    []model.Rule

	rules  *model.PolicyRules
	serial uint64 // names rules; never used twice
	uses   map[*definition]struct{}
}

// updatePolicy replaces one policy; nil removes it.
func (g *Graph) updatePolicy(key model.PolicyKey, now *model.Policy) {
	p := g.policies[key]
	if p == nil && now == nil || p != nil && p.value == now {
		return
	}
	if p == nil {
		p = &policy{key: key, sortKey: key.SortKey()}
		g.policies[key] = p
	}
	p.value = now
	g.dirty.policies[p] = struct{}{}
	var selection *selection
	if now != nil {
		selection = g.local.labels.add(now.Selector)
		g.dirty.selections[selection] = struct{}{}
	} else {
		delete(g.policies, key)
	}
	was := p.selection
	p.selection = selection
	if was != nil {
		g.touchGroups(was.all())
	}
	if was == selection {
		return
	}
	if was != nil {
		was.policies = without(was.policies, p)
		g.local.labels.removeUnused(was)
	}
	if selection != nil {
		g.touchGroups(selection.all())
		selection.policies = append(selection.policies, p)
	}
}

// updateProfile replaces one profile; nil removes it.
func (g *Graph) updateProfile(name string, now *model.Profile) {
	p := g.profiles[name]
	if p == nil && now == nil || p != nil && p.value == now {
		return
	}
	if p == nil {
		p = &profile{}
		g.profiles[name] = p
	}
	p.value = now
	g.dirty.profiles[name] = struct{}{}
	var labels map[string]string
	if now != nil {
		labels = now.Labels
	}
	g.sets.carryOn(g.sets.labels.setParent(name, labels))
	for _, m := range g.local.labels.setParent(name, labels) {
		g.dirty.groups[m.group] = struct{}{}
		g.dirty.selections[m.selection] = struct{}{}
	}
}

func (g *Graph) touchGroups(groups iter.Seq[*group]) {
	for gr := range groups {
		g.dirty.groups[gr] = struct{}{}
	}
}

// activate decides which policies and profiles apply on this node, and which of their rules must be built.
func (g *Graph) activate() {
	for s := range g.dirty.selections {
		if active := len(s.groups) > 0; active != s.active {
			s.active = active
			for _, p := range s.policies {
				g.dirty.policies[p] = struct{}{}
			}
		}
	}
	for p := range g.dirty.policies {
		g.activatePolicy(p)
	}
	for name := range g.dirty.profiles {
		g.activateProfile(name)
	}
}

func (g *Graph) activatePolicy(p *policy) {
	if p.value == nil || len(p.selection.groups) == 0 {
		p.rules = [2]*ruleset{g.retire(p.rules[model.Ingress]), g.retire(p.rules[model.Egress])}
		return
	}
	want := func(d model.Direction, applies bool, source []model.Rule) {
		if !applies {
			p.rules[d] = g.retire(p.rules[d])
			return
		}
		if p.rules[d] == nil {
			p.rules[d] = &ruleset{policy: p, key: p.key, direction: d}
		}
		p.rules[d].staged, p.rules[d].source = p.value.Staged, source
		g.dirty.rulesets[p.rules[d]] = struct{}{}
	}
	want(model.Ingress, p.value.AppliesIngress, p.value.Ingress)
	want(model.Egress, p.value.AppliesEgress, p.value.Egress)
}

func (g *Graph) activateProfile(name string) {
	p, parent := g.profiles[name], g.local.labels.parents[name]
	if p == nil {
		return
	}
	var rules [2][]model.Rule
	if p.value == nil {
		delete(g.profiles, name)
	} else if parent != nil && parent.groups.len() > 0 {
		rules = [2][]model.Rule{p.value.Ingress, p.value.Egress}
	}
	for d, source := range rules {
		switch rs := p.rules[d]; {
		case len(source) > 0 && rs == nil:
			key := model.PolicyKey{Kind: model.KindProfile, Name: name}
			p.rules[d] = &ruleset{key: key, direction: model.Direction(d), source: source}
			g.dirty.rulesets[p.rules[d]] = struct{}{}
		case len(source) > 0:
			rs.source = source
			g.dirty.rulesets[rs] = struct{}{}
		case rs != nil:
			g.touchGroups(g.appliesTo(rs))
			p.rules[d] = g.retire(rs)
		}
	}
}

// appliesTo returns the groups of the local index that the rules apply to.
func (g *Graph) appliesTo(rs *ruleset) iter.Seq[*group] {
	if rs.policy != nil {
		return rs.policy.selection.all()
	}
	if p := g.local.labels.parents[rs.key.Name]; p != nil {
		return p.groups.live()
	}
	return func(func(*group) bool) {}
}

// retire gives up what a ruleset, which may be nil, refers to. It returns nil.
func (g *Graph) retire(rs *ruleset) *ruleset {
	if rs != nil {
		g.sets.use(rs, nil)
	}
	return nil
}

// buildRules builds the rules that may have changed.
func (g *Graph) buildRules() {
	for rs := range g.dirty.rulesets {
		if g.sets.build(rs) {
			g.result.serial++
			rs.serial = g.result.serial
			g.touchGroups(g.appliesTo(rs))
		}
	}
}

// policiesOf returns the policies that apply to a group of the local index, in evaluation order.
func (g *Graph) policiesOf(gr *group) []*policy {
	var all []*policy
	for _, m := range gr.matches {
		all = append(all, m.selection.policies...)
	}
	sortPolicies(all, g.tiers)
	return all
}

// comparePolicies orders policies of one tier (D-15).
func comparePolicies(a, b *policy) int {
	return cmp.Or(cmp.Compare(a.value.Order, b.value.Order), strings.Compare(a.sortKey, b.sortKey))
}
