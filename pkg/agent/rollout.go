package agent

import "github.com/margay-project/margay/pkg/config"

// rollout is how far a configuration has come on its way into force. It decides what is to be done; its caller does
// that and says how it ended. Pure.
type rollout struct {
	begun   bool           // what is desired may come into force
	due     bool           // what is desired has not been looked at
	desired config.Config  // what is configured
	applied config.Config  // what is in force
	opening *config.Config // what the dataplane is about to be reopened with; nil: as it is
	refused *config.Config // what it could not be reopened with, and is not to be before the next resync
}

func newRollout(applied config.Config) rollout { return rollout{desired: applied, applied: applied} }

// desire sets what is configured.
func (r *rollout) desire(c config.Config) { r.desired, r.due = c, true }

// begin lets what is configured come into force.
func (r *rollout) begin() { r.begun = true }

// retry has what was refused tried again.
func (r *rollout) retry() {
	if r.refused != nil {
		r.refused, r.due = nil, true
	}
}

// next returns what has to be done now. Live: the change is in force. Reopen: the dataplane is to be given what is
// desired and reopened, and reopened is to be called. Restart: everything has to start again.
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

// reopened says how reopening the dataplane ended, and returns what is in force by that, or is refused. After an error
// the dataplane goes on with the configuration it has, so that policy does not wait for another.
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
