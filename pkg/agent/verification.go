package agent

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
	"github.com/margay-project/margay/pkg/verify"
)

// verification is one verification under way. It works in rounds: parts that changed while a round compared them are compared again
// by the next one. A difference counts only if, at one moment between two passes of the loop, neither of its sides has changed.
type verification struct {
	ctx     context.Context
	loop    *Loop
	kernel  verify.Kernel
	only    model.EndpointID   // zero: all
	since   time.Time          // when the work without a pause began
	done    *verify.Comparison // of earlier rounds; nil: there was none
	shadows map[*model.DirectionPolicy]*model.DirectionPolicy
	report  *inspect.Verification
	found   map[inspect.DifferenceRow]bool
	proven  map[model.EndpointID]bool
	parts   map[string]bool // parts that belong to no endpoint and were compared in some round
}

// target is an endpoint to be verified, as of the beginning of a round.
type target struct {
	policy  *model.EndpointPolicy
	inForce [2]verify.PolicyID
	staged  [2]verify.PolicyID
	shadows [2]*model.DirectionPolicy // as if staged policies were enforced; nil: there are none
	ifindex uint32                    // of the interface that it is programmed on
	why     string                    // why it cannot be compared; empty: it can
}

// policyRead is the policy of one direction in the kernel.
type policyRead struct {
	inForce   verify.PolicyID
	direction model.Direction
}

func newVerification(ctx context.Context, v *Verifier, only model.EndpointID) *verification {
	return &verification{ctx: ctx, loop: v.loop, kernel: v.kernel, only: only, since: time.Now(), found: map[inspect.DifferenceRow]bool{},
		shadows: map[*model.DirectionPolicy]*model.DirectionPolicy{}, parts: map[string]bool{},
		report: &inspect.Verification{Started: time.Now(), Differences: []inspect.DifferenceRow{}, NotProven: []inspect.NotProvenRow{}}}
}

func (v *verification) run() (*inspect.Verification, error) {
	began, used := time.Now(), cpu()
	var failed error
	if err := v.ask(func(View) { failed = v.kernel.Begin(v.pause) }); err != nil || failed != nil {
		return nil, cmp.Or(err, failed)
	}
	defer v.kernel.End()
	for again := true; again && v.report.Took.Rounds < mostRounds; {
		applies := v.loop.Status().Applies
		v.report.Took.Rounds++
		changed, err := v.round()
		if err != nil {
			return nil, fmt.Errorf("verify: %w", err)
		}
		again = changed || v.loop.Status().Applies != applies
	}
	r := v.report
	r.Endpoints = len(v.proven)
	r.Proven = len(r.Differences)+len(r.NotProven) == 0
	r.Took.Seconds, r.Took.CPUSeconds = time.Since(began).Seconds(), (cpu() - used).Seconds()
	return r, nil
}

// round compares everything once. changed: an endpoint has changed meanwhile, or some other part could not be compared.
func (v *verification) round() (changed bool, err error) {
	v.report.NotProven, v.proven = v.report.NotProven[:0], map[model.EndpointID]bool{}
	targets, err := v.targets()
	if err == nil {
		err = v.kernelRound()
	}
	if err != nil {
		return false, err
	}
	comparison, err := v.readSides(targets)
	if err != nil {
		return false, err
	}
	changed = len(v.report.NotProven) > 0
	read := map[policyRead]verify.Policy{}
	for i := range targets {
		t := &targets[i]
		why := t.why
		if why == "" {
			if why, err = v.endpoint(comparison, t, read); err != nil {
				return false, err
			}
			changed = changed || why != ""
		}
		if why == "" {
			v.proven[t.policy.ID] = true
		} else {
			v.report.NotProven = append(v.report.NotProven, inspect.NotProvenRow{Namespace: t.policy.ID.Namespace, Name: t.policy.ID.Name, Reason: why})
		}
	}
	return changed, nil
}

// kernelRound makes the kernel's side begin a round.
func (v *verification) kernelRound() error {
	var failed error
	err := v.ask(func(View) { failed = v.kernel.Round() })
	return cmp.Or(err, failed)
}

// targets returns the endpoints to be verified.
func (v *verification) targets() (targets []target, err error) {
	conditions := map[model.EndpointID]dataplane.EndpointStatus{}
	err = v.ask(func(view View) {
		for _, s := range view.states {
			conditions[s.ID] = s
		}
		for _, ep := range view.Graph.LocalEndpoints() {
			if v.only == (model.EndpointID{}) || v.only == ep.ID {
				targets = append(targets, target{policy: ep})
			}
		}
	})
	if err == nil && len(targets) == 0 && v.only != (model.EndpointID{}) {
		err = fmt.Errorf("no local endpoint %s; see margay show endpoints", v.only)
	}
	for i := range targets {
		t := &targets[i]
		t.ifindex = conditions[t.policy.ID].Ifindex
		switch s := conditions[t.policy.ID]; s.Condition {
		case dataplane.Enforced, dataplane.NoAddress:
		case dataplane.NoInterface:
			t.why = s.Reason
		default:
			t.why = cmp.Or(s.Reason, s.NotInForce, s.Misjudged.Text(), "it is about to be programmed")
		}
	}
	return targets, err
}

// shadow returns a policy as if its staged policies were enforced, the same pointer for the same policy; nil: it has no staged ones.
func (v *verification) shadow(p *model.DirectionPolicy) *model.DirectionPolicy {
	if known, ok := v.shadows[p]; ok {
		return known
	}
	v.shadows[p] = staged.Shadow(p)
	return v.shadows[p]
}

// readSides reads sets and addresses from both sides, and compares everything but policies.
func (v *verification) readSides(targets []target) (*verify.Comparison, error) {
	atoms := verify.NewAtoms()
	if v.done != nil {
		atoms = v.done.Atoms
	}
	for i := range targets {
		t := &targets[i]
		for d, p := range [2]*model.DirectionPolicy{t.policy.Ingress, t.policy.Egress} {
			atoms.AddPolicy(p)
			if t.shadows[d] = v.shadow(p); t.shadows[d] != nil {
				atoms.AddPolicy(t.shadows[d])
			}
		}
		if err := v.pause(); err != nil {
			return nil, err
		}
	}
	sets, err := v.sets(atoms)
	if err != nil {
		return nil, err
	}
	regions := verify.NewRegions(atoms, v.pause)
	for _, t := range targets {
		for _, a := range t.policy.Addrs {
			regions.Ask(a)
		}
	}
	for _, s := range sets {
		regions.AddMembers(s.ID, s.Members)
	}
	for _, id := range atoms.Sets() {
		if err := v.ask(func(view View) { regions.AddMembers(id, view.Graph.Members(id)) }); err != nil {
			return nil, err
		}
		if err := v.pause(); err != nil {
			return nil, err
		}
	}
	entries, err := v.kernel.Entries()
	if err != nil {
		return nil, err
	}
	regions.AddEntries(entries)
	pairs, err := regions.Pairs()
	if err != nil {
		return nil, err
	}
	if v.done == nil {
		v.done = &verify.Comparison{Atoms: atoms, Pause: v.pause}
	}
	v.done.Pairs, v.done.Of = pairs, regions.Of
	if v.only != (model.EndpointID{}) {
		return v.done, nil
	}
	return v.done, cmp.Or(v.classes(v.done, sets), v.marks(targets, entries), v.nodeFaults())
}

func (v *verification) differs(row inspect.DifferenceRow) {
	if !v.found[row] {
		v.found[row] = true
		v.report.Differences = append(v.report.Differences, row)
	}
}
