package agent

import "github.com/margay-project/margay/pkg/config"

// rollout tracks how far the desired configuration is applied. It decides the next step. Its caller carries the step
// out and reports the result. Pure.
type rollout struct {
	begun   bool           // the desired configuration may be applied
	due     bool           // next has not looked at the desired configuration
	desired config.Config  // the configuration to apply
	applied config.Config  // the configuration in force
	opening *config.Config // what the dataplane is about to be reopened with; nil: as it is
	refused *config.Config // the dataplane could not be reopened with it; not tried again before the next resync
}

func newRollout(applied config.Config) rollout { return rollout{desired: applied, applied: applied} }

// desire sets the desired configuration.
func (r *rollout) desire(c config.Config) { r.desired, r.due = c, true }

// begin allows the desired configuration to be applied.
func (r *rollout) begin() { r.begun = true }

// retry makes next try a refused configuration again.
func (r *rollout) retry() {
	if r.refused != nil {
		r.refused, r.due = nil, true
	}
}

// next returns the next step. Live: the change is in force. Reopen: the caller configures the dataplane with the
// desired configuration, reopens it, and calls reopened. Restart: everything has to start again.
func (r *rollout) next() config.Change {
	if !r.begun || !r.due {
		return config.Change{}
	}
	r.due = false
	from := r.applied
	if r.opening != nil {
		from = *r.opening
	}
	change := config.Between(from, r.desired)
	switch {
	case change.Effect == config.Live && r.opening != nil:
		r.open() // it is in force together with the rest
		return config.Change{}
	case change.Effect == config.Live:
		r.applied, r.refused = r.desired, nil
	case change.Effect == config.Reopen:
		if r.refused != nil && config.Between(*r.refused, r.desired).Effect == config.Unchanged {
			return config.Change{}
		}
		r.open()
	}
	return change
}

func (r *rollout) open() {
	desired := r.desired
	r.opening = &desired
}

// reopened records the result of reopening the dataplane. It returns the change that is now in force or, after an
// error, refused. After an error the dataplane continues with its present configuration, so that policy does not wait
// for another one.
func (r *rollout) reopened(err error) config.Change {
	if r.opening == nil {
		return config.Change{}
	}
	opening := r.opening
	change := config.Between(r.applied, *opening)
	r.opening = nil
	if err != nil {
		r.refused = opening
		return change
	}
	r.applied, r.refused = *opening, nil
	return change
}
