package agent

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/margay-project/margay/pkg/config"
)

// configLog logs changes of the configuration, and sets the log level.
type configLog struct {
	log      *slog.Logger
	level    *slog.LevelVar // nil: left alone
	problems *problems
}

func newConfigLog(log *slog.Logger, level *slog.LevelVar) *configLog {
	return &configLog{log: log, level: level, problems: newProblems(log, "configuration is not used as it is written",
		"configuration is used as it is written again")}
}

// Observe implements observer.
func (c *configLog) Observe(o Outcome) {
	if o.Config == nil {
		return
	}
	var level slog.Level
	// The settings have read it before.
	if c.level != nil && level.UnmarshalText([]byte(o.Config.Desired.LogLevel)) == nil {
		c.level.Set(level)
	}
	if o.Config.FileErr != nil {
		c.log.Error("the configuration file cannot be used, its last valid version stays in force", "err", o.Config.FileErr)
	}
	if o.Config.FileBack {
		c.log.Info("the configuration file can be used again and is in force")
	}
	var errs []error
	for _, p := range o.Config.Problems {
		errs = append(errs, errors.New(p.String()))
	}
	c.problems.report(errors.Join(errs...))
	if change := o.Config.Applied; change.Effect != config.Unchanged {
		c.log.Info("the configuration has changed", "settings", strings.Join(change.Settings, ", "), "effect", change.Effect.String())
	}
	if change := o.Config.Refused; change.Effect != config.Unchanged {
		c.log.Error("a change of the configuration is not in force, will try again", "settings", strings.Join(change.Settings, ", "),
			"err", o.Config.Err)
	}
}
