package oracle

import "github.com/margay-project/margay/pkg/model"

// JudgeStaged answers as Judge would if all staged policies were enforced (docs/policies.md, "Try a policy on live traffic").
func (c *Cluster) JudgeStaged(id model.EndpointID, dir model.Direction, pkt model.Packet) model.Verdict {
	return c.AsStaged().Judge(id, dir, pkt)
}

// AsStaged is the cluster if all staged policies were enforced.
func (c *Cluster) AsStaged() *Cluster {
	as := *c
	as.asStaged = true
	return &as
}

// counts reports whether a policy that applies to an endpoint is one of those that decide. As if staged policies were enforced,
// they decide, too, except those whose action is Delete or Ignore. All but the latter take the enforced policy of their name away,
// wherever that applies.
func (c *Cluster) counts(key model.PolicyKey) bool {
	p := c.policies[key]
	if p.Staged {
		return c.asStaged && (p.StagedAction == model.StagedSet || p.StagedAction == model.StagedLearn)
	}
	if !c.asStaged {
		return true
	}
	for other, o := range c.policies {
		if o.Staged && other.Enforced() == key && o.StagedAction != model.StagedIgnore {
			return false
		}
	}
	return true
}
