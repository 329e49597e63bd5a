package agent

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// settings joins the layers of the configuration with its way into force, and collects what a pass has to say of it.
// Owned by the loop.
type settings struct {
	layers  *config.Layers
	files   <-chan *config.File
	rollout rollout

	synced   bool           // the first snapshot has been drained
	complete bool           // and so has all of the configuration in the datastore
	outcome  *ConfigOutcome // of this pass; nil: nothing to say
}

func newSettings(layers *config.Layers, files <-chan *config.File) *settings {
	s := &settings{layers: layers, files: files, rollout: newRollout(layers.Config())}
	s.read()
	return s
}

// read records that the layers have changed.
func (s *settings) read() {
	s.rollout.desire(s.layers.Config())
	o := s.pending()
	o.Desired, o.Problems = s.layers.Config(), s.layers.Problems()
}

// pending is this pass's outcome for the configuration, made if there is none yet.
func (s *settings) pending() *ConfigOutcome {
	if s.outcome == nil {
		s.outcome = &ConfigOutcome{Desired: s.layers.Config(), Problems: s.layers.Problems()}
	}
	return s.outcome
}

// drain returns this pass's outcome for the configuration; nil: there is none.
func (s *settings) drain() *ConfigOutcome {
	o := s.outcome
	s.outcome = nil
	return o
}

// apply hands drained changes to the layers. The configuration comes into force after the first snapshot, since what
// the datastore says of it may be among the last of that, and it is not to change twice.
func (s *settings) apply(b Batch) {
	if len(b.Settings) > 0 {
		s.layers.Apply(b.Settings)
		s.read()
	}
	if b.InSync && !s.synced {
		s.synced = true
		s.rollout.begin()
	}
}

// forget removes settings of the datastore that were kept over a restart and that the datastore does not contain any
// more. A source may be in sync without a kind that cannot be listed: its settings stay. drained reports that no delivered
// object waits. It is asked after kinds, because a source delivers the objects of a kind before it reports the kind as listed.
// The result is whether there is something to apply.
func (s *settings) forget(kinds func() []syncer.KindStatus, drained func() bool) bool {
	if !s.synced || s.complete {
		return false
	}
	for _, k := range kinds() {
		if !k.Listed && (k.Kind == "FelixConfiguration" || isNode(k.Kind)) {
			return false
		}
	}
	if !drained() {
		return false
	}
	s.complete = true
	if s.layers.Apply([]model.Update{model.InSync{}}).Effect == config.Unchanged {
		return false
	}
	s.read()
	return true
}

// readFile reads a new version of the configuration file; a version that is not valid or cannot be read changes nothing. A change that
// takes a restart does not wait for the first snapshot: it may correct the setting that keeps the datastore from being
// read.
func (s *settings) readFile(f *config.File) {
	back := s.layers.FileErr() != nil
	change, err := s.layers.SetFile(f)
	if err != nil {
		s.pending().FileErr = err
		return
	}
	s.pending().FileBack = back
	if change.Effect == config.Restart {
		s.rollout.begin()
	}
	s.read()
}

// reconfigure applies the desired configuration as far as possible now. reopen: the dataplane has to be reopened. The
// error is ErrRestart.
func (s *settings) reconfigure(d dataplane.Dataplane) (reopen bool, err error) {
	change := s.rollout.next()
	names := strings.Join(change.Settings, ", ")
	switch change.Effect {
	case config.Live:
		s.pending().Applied = change
	case config.Reopen:
		if err := d.Configure(s.rollout.desired.Config); err != nil {
			return false, fmt.Errorf("%w (%s: %w)", ErrRestart, names, err)
		}
		return true, nil
	case config.Restart:
		return false, fmt.Errorf("%w (%s)", ErrRestart, names)
	}
	return false, nil
}

// reopened says how reopening the dataplane ended.
func (s *settings) reopened(err error) {
	change := s.rollout.reopened(err)
	if change.Effect == config.Unchanged {
		return
	}
	if err != nil {
		s.pending().Refused, s.pending().Err = change, err
		return
	}
	s.pending().Applied = change
}
