package plan

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// shadows gives workloads with staged policies a second endpoint: its policy is the workload's policy as if the staged ones
// were enforced (docs/adr/0022). It is planned as any other, but claims no addresses, comes after all others, and is charged
// to an account of its own.
type shadows struct {
	pending map[model.EndpointID]*model.EndpointPolicy // workloads whose shadow is to be looked at, as they are now; nil: gone
	has     map[model.EndpointID][2]*model.DirectionPolicy
	of      map[*model.DirectionPolicy]*shadowed
}

// shadowed is the policy of a direction as it would be.
type shadowed struct {
	policy *model.DirectionPolicy
	users  int
}

func newShadows() *shadows {
	return &shadows{pending: map[model.EndpointID]*model.EndpointPolicy{},
		has: map[model.EndpointID][2]*model.DirectionPolicy{}, of: map[*model.DirectionPolicy]*shadowed{}}
}

// note is called with each change of an endpoint. Its shadow is planned later: see due.
func (s *shadows) note(id model.EndpointID, policy *model.EndpointPolicy) {
	if s.concerns(id, policy) {
		s.pending[id] = policy
	}
}

// concerns reports whether a change of an endpoint may change its shadow.
func (s *shadows) concerns(id model.EndpointID, policy *model.EndpointPolicy) bool {
	_, had := s.has[id]
	_, pending := s.pending[id]
	return id.Kind == model.WorkloadEndpoint && (had || pending || policy != nil && (hasStaged(policy.Ingress) || hasStaged(policy.Egress)))
}

func hasStaged(p *model.DirectionPolicy) bool {
	return slices.ContainsFunc(p.Tiers, func(t model.TierPolicy) bool {
		return slices.ContainsFunc(t.Policies, func(p *model.PolicyRules) bool { return p.Staged })
	})
}

// waiting reports whether a shadow is to be looked at.
func (s *shadows) waiting() bool { return len(s.pending) > 0 }

// due are the changes of shadows since the last call, by the ids of shadows; nil: it is gone.
func (s *shadows) due() map[model.EndpointID]*model.EndpointPolicy {
	if len(s.pending) == 0 {
		return nil
	}
	changes := map[model.EndpointID]*model.EndpointPolicy{}
	for _, id := range slices.SortedFunc(maps.Keys(s.pending), model.EndpointID.Compare) {
		was, had := s.has[id]
		now := s.shadow(id, s.pending[id])
		for _, p := range was {
			s.leave(p)
		}
		if had || now != nil {
			changes[id.Shadow()] = now
		}
	}
	clear(s.pending)
	return changes
}

// shadow is the policy of a workload's shadow; nil: it has none.
func (s *shadows) shadow(id model.EndpointID, policy *model.EndpointPolicy) *model.EndpointPolicy {
	delete(s.has, id)
	if policy == nil {
		return nil
	}
	ingress, egress := s.use(policy.Ingress), s.use(policy.Egress)
	s.has[id] = [2]*model.DirectionPolicy{policy.Ingress, policy.Egress}
	if staged.IsNone(ingress) && staged.IsNone(egress) {
		s.leave(policy.Ingress)
		s.leave(policy.Egress)
		delete(s.has, id)
		return nil
	}
	return &model.EndpointPolicy{ID: id.Shadow(), Iface: policy.Iface, Addrs: policy.Addrs, Ingress: ingress, Egress: egress}
}

// use returns what a policy would be, the same for each that has it, for one more user.
func (s *shadows) use(p *model.DirectionPolicy) *model.DirectionPolicy {
	known := s.of[p]
	if known == nil {
		known = &shadowed{policy: staged.Shadow(p)}
		if known.policy == nil {
			known.policy = staged.None(p.Direction)
		}
		s.of[p] = known
	}
	known.users++
	return known.policy
}

// leave is called when a user left; p may be nil.
func (s *shadows) leave(p *model.DirectionPolicy) {
	if known := s.of[p]; known != nil {
		if known.users--; known.users == 0 {
			delete(s.of, p)
		}
	}
}

func isShadow(id model.EndpointID) bool { return id.Kind == model.ShadowEndpoint }

// accountOf is whom an endpoint's policy is charged to: its namespace, or for a shadow an account beside it.
func accountOf(id model.EndpointID) string {
	if isShadow(id) {
		return stagedAccount + id.Namespace
	}
	return id.Namespace
}

// stagedAccount begins the accounts of shadows. It is in no namespace's name.
const stagedAccount = "staged/"

// Unstaged is why a workload's staged policies are not evaluated as they are now.
type Unstaged struct {
	Failed  error // why they cannot be; nil: they can
	Pending bool  // they are still to be made; until then those from before are evaluated, or none
}

// StagedNotEvaluated returns the workloads whose staged policies, as they are now, a compiler does not evaluate.
func StagedNotEvaluated(c *Compiler) map[model.EndpointID]Unstaged {
	all := map[model.EndpointID]Unstaged{}
	for id := range c.endpoints.shadows.pending {
		all[id] = Unstaged{Pending: true}
	}
	for id := range c.assigned.allWaiting() {
		if isShadow(id) {
			all[model.WorkloadID(id.Namespace, id.Name)] = Unstaged{Pending: true}
		}
	}
	failed := c.failures.all()
	c.endpoints.addShort(failed)
	for at, err := range failed {
		if !isShadow(at.Endpoint) {
			continue
		}
		id := model.WorkloadID(at.Endpoint.Namespace, at.Endpoint.Name)
		why := all[id]
		if why.Failed == nil || why.Failed.Error() < err.Error() { // of both directions always the same
			why.Failed = err
		}
		all[id] = why
	}
	return all
}
