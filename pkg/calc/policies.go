package calc

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// policy is one policy of the datastore.
type policy struct {
	key       model.PolicyKey
	sortKey   string // empty until it is needed
	tier      string
	order     float64
	selection *policySelection // in the index of the node; nil: it was just deleted
	source    ruleStore        // nil: no rules
	rules     [2]*ruleset      // by direction; nil where it does not apply on this node
	applies   [2]bool          // its types, by direction
	staged    bool
}

// value is the policy as it came, but for lists without entries, which are nil.
func (p *policy) value() *model.Policy {
	rules := sourceRules(p.source)
	return &model.Policy{
		Tier: p.tier, Order: p.order, Selector: p.selection.Selector(), Staged: p.staged,
		AppliesIngress: p.applies[model.Ingress], AppliesEgress: p.applies[model.Egress],
		Ingress: rules[model.Ingress], Egress: rules[model.Egress],
	}
}

func sourceRules(s ruleStore) [2][]model.Rule {
	if s == nil {
		return [2][]model.Rule{}
	}
	return s.lists()
}

// profile is one profile of the datastore. Its labels are with the label indexes.
type profile struct {
	source ruleStore   // nil: no rules
	gone   bool        // it was just deleted
	rules  [2]*ruleset // by direction; nil where it has none or no endpoint of this node names it
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
	if p == nil && now == nil {
		return
	}
	if p == nil {
		p = &policy{key: key}
		g.policies[key] = p
	}
	g.dirty.policies[p] = struct{}{}
	var selection *policySelection
	if now != nil {
		p.tier, p.order, p.staged = now.Tier, now.Order, now.Staged
		p.applies = [2]bool{now.AppliesIngress, now.AppliesEgress}
		p.source = &plainRules{now.Ingress, now.Egress}
		selection = g.local.labels.Add(now.Selector)
		g.dirty.selections[selection] = struct{}{}
	} else {
		delete(g.policies, key)
	}
	was := p.selection
	p.selection = selection
	if was != nil {
		g.touchGroups(was.Groups())
	}
	if was == selection {
		return
	}
	if was != nil {
		was.Use.policies = slices.DeleteFunc(was.Use.policies, func(other *policy) bool { return other == p })
		if len(was.Use.policies) == 0 {
			g.local.labels.Remove(was)
		}
	}
	if selection != nil {
		g.touchGroups(selection.Groups())
		selection.Use.policies = append(selection.Use.policies, p)
	}
}

// updateProfile replaces one profile; nil removes it.
func (g *Graph) updateProfile(name string, now *model.Profile) {
	p := g.profiles[name]
	if p == nil && now == nil {
		return
	}
	if p == nil {
		p = &profile{}
		g.profiles[name] = p
	}
	g.dirty.profiles[name] = struct{}{}
	var labels map[string]string
	if p.gone = now == nil; now != nil {
		labels, p.source = now.Labels, &plainRules{now.Ingress, now.Egress}
	}
	g.sets.propagate(g.sets.labels.SetParent(name, labels))
	for _, m := range g.local.labels.SetParent(name, labels) {
		g.dirty.groups[m.Group] = struct{}{}
		g.dirty.selections[m.Selection] = struct{}{}
	}
}

func (g *Graph) touchGroups(groups iter.Seq[*localGroup]) {
	for gr := range groups {
		g.dirty.groups[gr] = struct{}{}
	}
}

// activate decides which policies and profiles apply on this node, and which of their rules must be built.
func (g *Graph) activate() {
	for s := range g.dirty.selections {
		if active := !s.IsEmpty(); active != s.Use.active {
			s.Use.active = active
			for _, p := range s.Use.policies {
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
	if p.selection == nil || p.selection.IsEmpty() {
		p.rules = [2]*ruleset{g.retire(p.rules[model.Ingress]), g.retire(p.rules[model.Egress])}
		p.source = g.packed(p.source)
		return
	}
	lists := sourceRules(p.source)
	p.source = plain(lists)
	if p.sortKey == "" {
		p.sortKey = p.key.SortKey()
	}
	for d, applies := range p.applies {
		if !applies {
			p.rules[d] = g.retire(p.rules[d])
			continue
		}
		if p.rules[d] == nil {
			p.rules[d] = &ruleset{policy: p, key: p.key, direction: model.Direction(d)}
		}
		p.rules[d].staged, p.rules[d].source = p.staged, lists[d]
		g.dirty.rulesets[p.rules[d]] = struct{}{}
	}
}

// packed returns rules that do not apply on this node, to be kept.
func (g *Graph) packed(s ruleStore) ruleStore {
	rules, ok := s.(*plainRules)
	if !ok {
		return s
	}
	return pack(*rules, func(s *selector.Selector) *selector.Selector {
		same, found := g.local.labels.Same(s)
		if !found {
			same, _ = g.sets.labels.Same(s)
		}
		return same
	})
}

// plain returns rules that apply on this node, to be kept.
func plain(lists [2][]model.Rule) ruleStore {
	if len(lists[0])+len(lists[1]) == 0 {
		return nil
	}
	return (*plainRules)(&lists)
}

func (g *Graph) activateProfile(name string) {
	p := g.profiles[name]
	if p == nil {
		return
	}
	var rules [2][]model.Rule
	switch {
	case p.gone:
		delete(g.profiles, name)
	case g.local.labels.IsParent(name):
		rules = sourceRules(p.source)
		p.source = plain(rules)
	default:
		p.source = g.packed(p.source)
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
func (g *Graph) appliesTo(rs *ruleset) iter.Seq[*localGroup] {
	if rs.policy != nil {
		return rs.policy.selection.Groups()
	}
	return g.local.labels.Children(rs.key.Name)
}

// retire gives up what a ruleset, which may be nil, refers to. It returns nil.
func (g *Graph) retire(rs *ruleset) *ruleset {
	if rs != nil {
		g.sets.use(rs, nil)
		delete(g.sets.spending.refused, rs)
		delete(g.dirty.rulesets, rs)
	}
	return nil
}

// buildRules builds the rules that may have changed.
func (g *Graph) buildRules() {
	for _, rs := range inTurn(g.dirty.rulesets) {
		if g.sets.build(rs) {
			g.result.serial++
			rs.serial = g.result.serial
			g.touchGroups(g.appliesTo(rs))
		}
	}
}

// policiesOf returns the policies that apply to a group of the local index, in evaluation order.
func (g *Graph) policiesOf(gr *localGroup) []*policy {
	var all []*policy
	for s := range gr.Selections() {
		all = append(all, s.Use.policies...)
	}
	sortPolicies(all, g.tiers)
	return all
}

// comparePolicies orders policies of one tier (D-15).
func comparePolicies(a, b *policy) int {
	return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.sortKey, b.sortKey))
}
