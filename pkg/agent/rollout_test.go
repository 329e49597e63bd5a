package agent

import (
	"errors"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/config"
)

// step is one event of a rollout and what has to be done after it.
type step struct {
	name   string
	event  func(*rollout)
	effect config.Effect
	change []string // settings
}

// wish sets what is configured.
func wish(change func(*config.Config)) func(*rollout) {
	return func(r *rollout) {
		c := config.Defaults()
		change(&c)
		r.desire(c)
	}
}

func TestAConfigurationOnItsWayIntoForce(t *testing.T) {
	debug := func(c *config.Config) { c.LogLevel = "debug" }
	drop := func(c *config.Config) { c.HostDrop = true }
	both := func(c *config.Config) { debug(c); drop(c) }
	prefix := func(c *config.Config) { c.InterfacePrefix = "tap" }
	defaults := func(*config.Config) {}
	begin := step{"begin", (*rollout).begin, config.Unchanged, nil}
	nothing := step{"nothing", func(*rollout) {}, config.Unchanged, nil}
	retry := func(effect config.Effect, change ...string) step {
		return step{"retry", (*rollout).retry, effect, change}
	}
	reopened := step{"reopened", func(r *rollout) { r.reopened(nil) }, config.Unchanged, nil}
	refused := step{"refused", func(r *rollout) { r.reopened(errors.New("no memory")) }, config.Unchanged, nil}
	level, host, tap := "log-level", "default-endpoint-to-host-action", "interface-prefix"
	for _, tc := range []struct {
		name    string
		steps   []step
		applied func(*config.Config)
	}{
		{"nothing happens before it begins", []step{{"debug", wish(debug), config.Unchanged, nil}, nothing}, defaults},
		{"and then once", []step{{"debug", wish(debug), config.Unchanged, nil},
			{"begin", (*rollout).begin, config.Live, []string{level}}, nothing}, debug},
		{"the same again is no change", []step{begin, {"debug", wish(debug), config.Live, []string{level}},
			{"debug", wish(debug), config.Unchanged, nil}}, debug},
		{"reopened", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}}, nothing, reopened, nothing}, drop},
		{"refused", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}}, refused, nothing,
			{"drop", wish(drop), config.Unchanged, nil}, retry(config.Reopen, host), reopened, retry(config.Unchanged)}, drop},
		{"refused and taken back", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}}, refused,
			{"defaults", wish(defaults), config.Unchanged, nil}, retry(config.Unchanged)}, defaults},
		{"refused and something else", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}}, refused,
			{"debug", wish(debug), config.Live, []string{level}}}, debug},
		{"taken back before it is reopened", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}},
			{"defaults", wish(defaults), config.Reopen, []string{host}}, reopened}, defaults},
		{"added to before it is reopened", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}},
			{"both", wish(both), config.Unchanged, nil}, reopened, nothing}, both},
		{"a restart", []step{begin, {"prefix", wish(prefix), config.Restart, []string{tap}}}, defaults},
		{"a restart while it is reopened", []step{begin, {"drop", wish(drop), config.Reopen, []string{host}},
			{"prefix", wish(prefix), config.Restart, []string{host, tap}}}, defaults},
	} {
		r := newRollout(config.Defaults())
		for _, s := range tc.steps {
			s.event(&r)
			if change := r.next(); change.Effect != s.effect || !slices.Equal(change.Settings, s.change) {
				t.Errorf("%s: after %s %v %v, want %v %v", tc.name, s.name, change.Effect, change.Settings, s.effect, s.change)
			}
		}
		want := config.Defaults()
		tc.applied(&want)
		if change := config.Between(want, r.applied); change.Effect != config.Unchanged {
			t.Errorf("%s: in force differs in %v", tc.name, change.Settings)
		}
	}
}

func TestWhatBecomesOfReopening(t *testing.T) {
	r := newRollout(config.Defaults())
	if change := r.reopened(nil); change.Effect != config.Unchanged {
		t.Errorf("%+v though nothing of the configuration was to change", change)
	}
	r.begin()
	wish(func(c *config.Config) { c.HostDrop = true })(&r)
	r.next()
	if change := r.reopened(errors.New("no memory")); change.Effect != config.Reopen || r.applied.HostDrop {
		t.Errorf("refused: %+v, in force %t", change, r.applied.HostDrop)
	}
	if change := r.reopened(errors.New("no memory")); change.Effect != config.Unchanged {
		t.Errorf("refused twice: %+v", change)
	}
	r.retry()
	r.next()
	if change := r.reopened(nil); change.Effect != config.Reopen || !r.applied.HostDrop {
		t.Errorf("reopened: %+v, in force %t", change, r.applied.HostDrop)
	}
}
