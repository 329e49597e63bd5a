package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// configure says what is wrong with the configuration after a change of it, and logs as much as it says from now on. The
// rest comes into force with the next apply.
func (l *Loop) configure() {
	l.level()
	var errs []error
	for _, p := range l.o.Settings.Problems() {
		errs = append(errs, errors.New(p.String()))
	}
	l.configuring.say(errors.Join(errs...))
}

// settle has the settings forget what the datastore does not say any more, of what it said before everything started anew.
// A snapshot may be complete without kinds that cannot be listed: what those said stays. It reports whether there is
// something to bring into force.
func (l *Loop) settle() bool {
	if !l.synced || l.settled {
		return false
	}
	for _, k := range l.o.Source.Kinds() {
		if !k.Listed && (k.Kind == "FelixConfiguration" || k.Kind == "Node") {
			return false
		}
	}
	if l.buffer.Len() > 0 { // what was listed is delivered, but may not have been taken
		return false
	}
	l.settled = true
	return l.o.Settings.Apply([]model.Update{model.InSync{}}).Effect != config.Unchanged
}

// readFile takes a new version of the configuration file; one that is not valid changes nothing.
func (l *Loop) readFile(f *config.File) {
	change, err := l.o.Settings.SetFile(f)
	if err != nil {
		l.o.Log.Error("the configuration file is not valid, what it said before stays in force", "err", err)
		return
	}
	l.restart = l.restart || change.Effect == config.Restart
	l.configure()
}

// level sets how much is logged.
func (l *Loop) level() {
	var level slog.Level
	// The settings have read it before.
	if l.o.Level != nil && level.UnmarshalText([]byte(l.o.Settings.Config().LogLevel)) == nil {
		l.o.Level.Set(level)
	}
}

// reconfigure brings a change of the configuration into force. It waits for the first snapshot, since what the
// datastore says may be among the last of it, and what is configured is not to change twice; but not if the file takes a
// restart: it may mend what keeps the datastore from being read. The error is ErrRestart.
func (l *Loop) reconfigure() error {
	if !l.synced && !l.restart {
		return nil
	}
	desired := l.o.Settings.Config()
	change := config.Between(l.inForce, desired)
	names := strings.Join(change.Settings, ", ")
	switch change.Effect {
	case config.Unchanged:
		return nil
	case config.Restart:
		return fmt.Errorf("%w (%s)", ErrRestart, names)
	case config.Reopen:
		if l.refused != nil && config.Between(*l.refused, desired).Effect == config.Unchanged {
			return nil
		}
		if err := l.o.Dataplane.Configure(DataplaneConfig(desired)); err != nil {
			return fmt.Errorf("%w (%s: %w)", ErrRestart, names, err)
		}
		l.reopen, l.opening = true, &desired
		return nil
	}
	l.changed(desired)
	return nil
}

// changed notes that a change of the configuration is in force.
func (l *Loop) changed(desired config.Config) {
	change := config.Between(l.inForce, desired)
	if change.Effect != config.Unchanged {
		l.o.Log.Info("the configuration has changed", "settings", strings.Join(change.Settings, ", "), "effect", change.Effect.String())
	}
	l.inForce, l.refused = desired, nil
}

// reopened notes how reopening the dataplane ended. After an error it goes on with the configuration it has, so that
// policy does not wait for another.
func (l *Loop) reopened(err error) {
	opening := l.opening
	l.opening = nil
	switch {
	case opening == nil:
	case err == nil:
		l.changed(*opening)
	default:
		l.refused = opening
		l.o.Log.Error("a change of the configuration is not in force, will try again",
			"settings", strings.Join(config.Between(l.inForce, *opening).Settings, ", "), "err", err)
	}
}

// DataplaneConfig is the part of the configuration that a dataplane is told.
func DataplaneConfig(c config.Config) dataplane.Config {
	d := dataplane.Config{
		BPFFS: c.BPFFS, Instance: c.Instance, Prefix: c.InterfacePrefix, MapEntries: c.MapSizes,
		Shortcut: !c.NoShortcut, StrictTCP: c.StrictMidFlow, Keep: c.KeepExisting, HostDrop: c.DropToHost,
		DropTunnels: !c.AllowEncap, MidFlowGrace: c.MidFlowGrace, EventRate: c.EventRate, FlowQuota: c.FlowQuota, Interpret: c.Interpret,
		Timeouts: dataplane.Timeouts(c.Timeouts),
	}
	for _, port := range append([]uint16{c.VXLANPort}, c.TunnelPorts...) {
		if port != 0 && !slices.Contains(d.TunnelPorts, port) {
			d.TunnelPorts = append(d.TunnelPorts, port)
		}
	}
	d.MarkSeen, d.MarkJudge, d.MarkOwn = c.Marks()
	return d
}

// configProblems are what is wrong with the datastore's configuration, as problems of objects.
func configProblems(s *config.Layers) []validate.Problem {
	var all []validate.Problem
	for _, p := range s.Problems() {
		all = append(all, validate.Problem{Ref: validate.Ref{Kind: "FelixConfiguration", Name: p.Object},
			Severity: validate.Warning, Field: "spec." + p.Field, Reason: p.Reason})
	}
	return all
}
