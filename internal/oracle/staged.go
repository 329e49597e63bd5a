package oracle

import "github.com/margay-project/margay/pkg/model"

// JudgeStaged answers as Judge would if all staged policies were enforced (docs/policies.md, "Try a policy on live traffic").
func (c *Cluster) JudgeStaged(id model.EndpointID, dir model.Direction, pkt model.Packet) model.Verdict {
	as := *c
	as.asStaged = true
	return as.Judge(id, dir, pkt)
}

// counts reports whether a policy that applies to the endpoint in the direction is one of those that decide. As if staged
// policies were enforced, they decide, too, except those whose action is Delete or Ignore. All but the latter take the enforced
// policy of their name away, where they apply themselves.
func (c *Cluster) counts(key model.PolicyKey, e endpoint, dir model.Direction) bool {
	p := c.policies[key]
	if p.Staged {
		return c.asStaged && (p.StagedAction == model.StagedSet || p.StagedAction == model.StagedLearn)
	}
	if !c.asStaged {
		return true
	}
	for other, o := range c.policies {
		applies := dir == model.Ingress && o.AppliesIngress || dir == model.Egress && o.AppliesEgress
		if o.Staged && applies && other.Enforced() == key && o.StagedAction != model.StagedIgnore && o.Selector.Matches(c.labels(e.Labels, e.Profiles)) {
			return false
		}
	}
	return true
}
