package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// resolver holds the policy of every group of local endpoints. Groups with equal policies share one.
type resolver struct {
	groups map[*localGroup][2]*sharedPolicy // by direction
	shared map[string]*sharedPolicy         // by key
	serial uint64                           // the last one given to a ruleset
	work   Work                             // of this flush
}

// sharedPolicy is the policy of one direction and the number of groups that have it.
type sharedPolicy struct {
	key    string
	policy *model.DirectionPolicy
	groups int
}

func newResolver() *resolver {
	return &resolver{groups: map[*localGroup][2]*sharedPolicy{}, shared: map[string]*sharedPolicy{}}
}

// resolve works out the policy of the local endpoints it may have changed for, and returns the real differences.
func (t *policyTable) resolve() map[model.EndpointID]*model.EndpointPolicy {
	t.resolveGroups()
	var out map[model.EndpointID]*model.EndpointPolicy
	for id := range t.dirty.endpoints {
		ep := t.local.endpoints[id]
		if ep == nil {
			put(&out, id, nil)
			continue
		}
		both := t.result.groups[ep.Group()]
		now := &model.EndpointPolicy{ID: id, Iface: ep.iface, Addrs: ep.addrs, Sources: ep.sources,
			Ingress: both[model.Ingress].policy, Egress: both[model.Egress].policy}
		if was := ep.desired; was == nil || !equalEndpointPolicies(was, now) {
			ep.desired, ep.applied = now, false
		}
		if !ep.applied {
			ep.applied = true
			put(&out, id, ep.desired)
		}
	}
	return out
}

func equalEndpointPolicies(a, b *model.EndpointPolicy) bool {
	return a.ID == b.ID && a.Iface == b.Iface && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Sources, b.Sources) &&
		a.Ingress == b.Ingress && a.Egress == b.Egress && equalValues(a.Host, b.Host)
}

// resolveGroups resolves the dirty groups, and marks their endpoints dirty if the policy of the group changed. Nothing
// is released before everything has been acquired, so that a policy that only changes hands keeps its pointer.
func (t *policyTable) resolveGroups() {
	t.result.work.Groups = len(t.dirty.groups)
	t.evaluation.reorder(t.tiers, t.policies.Get)
	var released []*sharedPolicy
	for gr := range t.dirty.groups {
		was, existed := t.result.groups[gr]
		if existed {
			released = append(released, was[:]...)
		}
		if gr.IsEmpty() {
			delete(t.result.groups, gr)
			continue
		}
		t.evaluation.turnTo(gr)
		now := [2]*sharedPolicy{t.direction(gr, model.Ingress), t.direction(gr, model.Egress)}
		if now == was {
			continue
		}
		t.result.groups[gr] = now
		for it := range gr.Items() {
			t.dirty.endpoints[it.Value] = struct{}{}
		}
	}
	for _, s := range released {
		if s.groups--; s.groups == 0 {
			delete(t.result.shared, s.key)
		}
	}
}

// direction returns the policy of a group, the one in hand, for one direction, and counts the group in.
func (t *policyTable) direction(gr *localGroup, d model.Direction) *sharedPolicy {
	var profiles []*ruleset
	for name := range gr.Parents() {
		if p := t.profiles.Get(name); p != nil && p.active.ruleset(d) != nil {
			profiles = append(profiles, p.active.ruleset(d))
		}
	}
	key, n := t.evaluation.keyOf(t.tiers, profiles, d)
	s := t.result.shared[string(key)]
	if s == nil {
		s = &sharedPolicy{key: string(key), policy: t.evaluation.policyOf(t.tiers, profiles, d, n)}
		t.result.shared[s.key] = s
	}
	s.groups++
	return s
}
