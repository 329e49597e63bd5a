package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// endpoint compares both directions of one endpoint. why: the reason why it could not be compared, such as a change meanwhile; empty:
// it was.
func (v *verification) endpoint(c *verify.Comparison, t *target, read map[policyRead]verify.Policy) (why string, err error) {
	if len(t.policy.Addrs) == 0 {
		return "", nil
	}
	ok := false
	if err := v.ask(func(View) { ok, err = v.identify(t) }); err != nil {
		return "", err
	}
	switch {
	case err != nil:
		return "", err
	case !ok:
		if same, err := v.same(t); err != nil || !same {
			return hasChanged, err
		}
		v.differs(inspect.DifferenceRow{Namespace: t.policy.ID.Namespace, Name: t.policy.ID.Name,
			Text: fmt.Sprintf("%s: the kernel has no endpoint that is ready on its interface", t.policy.ID)})
		return "", nil
	}
	for d, p := range [2]*model.DirectionPolicy{t.policy.Ingress, t.policy.Egress} {
		if why, err := v.direction(c.Compare, t, p, t.inForce[d], read); why != "" || err != nil {
			return why, err
		}
	}
	for d, p := range t.shadows {
		if p == nil || t.staged[d] == 0 {
			continue // there are no staged policies, or the kernel does not evaluate them, which show staged reports
		}
		if why, err := v.direction(c.CompareVerdicts, t, p, t.staged[d], read); why != "" || err != nil {
			return why, err
		}
	}
	if same, err := v.same(t); err != nil || !same {
		return hasChanged, err
	}
	return v.faults(t)
}

const hasChanged = "its policy changes all the time"

// identify finds the policies that the kernel has for an endpoint. Not ok: the endpoint is closed.
func (v *verification) identify(t *target) (ok bool, err error) {
	if t.inForce, ok, err = v.kernel.InForce(t.policy.ID); err == nil {
		t.staged, err = v.kernel.Staged(t.policy.ID)
	}
	return ok, err
}

// ask calls do between two passes of the loop, which waits for it.
func (v *verification) ask(do func(View)) error {
	return v.loop.Query(v.ctx, func(view View) {
		began := time.Now()
		do(view)
		v.report.Took.LoopSeconds = max(v.report.Took.LoopSeconds, time.Since(began).Seconds())
	})
}

// same reports whether the endpoint's policy is the same as at the beginning, on both sides.
func (v *verification) same(t *target) (same bool, err error) {
	var failed error
	err = v.ask(func(view View) { same, failed = v.unchanged(view, t) })
	if err == nil {
		err = failed
	}
	return same, err
}

// unchanged is the part of same that runs between two passes of the loop.
func (v *verification) unchanged(view View, t *target) (bool, error) {
	ep, ok := view.Graph.LocalEndpoint(t.policy.ID)
	if !ok || ep != t.policy {
		return false, nil
	}
	i := slices.IndexFunc(view.states, func(s dataplane.EndpointStatus) bool { return s.ID == ep.ID })
	if i < 0 || view.states[i].Condition != dataplane.Enforced {
		return false, nil
	}
	now := target{policy: ep}
	_, err := v.identify(&now)
	return now.inForce == t.inForce && now.staged == t.staged, err
}

// comparison is Compare or CompareVerdicts of a verify.Comparison.
type comparison func(*model.DirectionPolicy, []netip.Addr, verify.Policy, verify.PolicyID) (verify.Result, error)

// direction compares one direction of an endpoint, and reports the differences that hold.
func (v *verification) direction(compare comparison, t *target, p *model.DirectionPolicy, inForce verify.PolicyID, read map[policyRead]verify.Policy) (why string, err error) {
	as := policyRead{inForce, p.Direction}
	k := read[as]
	if k == nil {
		if k, err = v.kernel.Policy(inForce, p.Direction); err != nil {
			if same, failed := v.same(t); failed != nil || !same {
				return hasChanged, failed
			}
			v.differs(inspect.DifferenceRow{Namespace: t.policy.ID.Namespace, Name: t.policy.ID.Name, Direction: p.Direction.String(),
				Text: fmt.Sprintf("%s %s: the policy in the kernel cannot be read: %v", t.policy.ID, p.Direction, err)})
			return "", nil
		}
		read[as] = k
	}
	result, err := compare(p, t.policy.Addrs, k, inForce)
	v.report.Questions += result.Questions
	if errors.Is(err, verify.ErrTooMany) {
		return err.Error(), nil
	}
	if err != nil {
		return "", err
	}
	stale := false
	for i := range result.Differences {
		f := &result.Differences[i]
		holds, same := false, false
		var failed error
		err := v.ask(func(view View) {
			if same, failed = v.unchanged(view, t); same && failed == nil {
				holds, failed = v.done.Holds(p, f, view.Graph.SetContains, v.kernel.Entry)
			}
		})
		if err == nil {
			err = failed
		}
		switch {
		case err != nil:
			return "", err
		case !same:
			return hasChanged, nil
		case !holds:
			stale = true
		default:
			if p.Shadow {
				f.Evaluator += " of staged policies"
			}
			v.differs(differenceRow(t.policy.ID, p.Direction, f))
		}
	}
	if stale {
		return "the addresses of its peers change all the time", nil
	}
	return "", nil
}
