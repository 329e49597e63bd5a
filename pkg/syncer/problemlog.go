package syncer

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/validate"
)

// Turn is a problem of an object that came or went.
type Turn struct {
	Problem validate.Problem
	Over    bool
}

// Turns are how the problems of an object changed, those that are new first.
func Turns(old, now []validate.Problem) (all []Turn) {
	for _, p := range now {
		if !slices.Contains(old, p) {
			all = append(all, Turn{Problem: p})
		}
	}
	for _, p := range old {
		if !slices.Contains(now, p) {
			all = append(all, Turn{Problem: p, Over: true})
		}
	}
	return all
}

// Lines that the log has in a minute about problems of one kind: a cluster can have thousands, and each tenant can make some.
const (
	problemLines   = 20
	namespaceLines = 5 // of those, of one namespace
)

// ProblemLog writes problems with objects of one kind to the log. Not safe for concurrent use.
type ProblemLog struct {
	Log   *slog.Logger
	Where string // in messages, after "problem"; empty: "with an object"

	since    time.Time // of the minute
	lines    int
	bySpace  map[string]int // of those; objects without a namespace are no tenant's, and not in it
	withheld bool           // there were more, which is logged
}

// Write logs the changes, unless there are too many.
func (l *ProblemLog) Write(all []Turn, now time.Time) {
	if now.Sub(l.since) >= time.Minute {
		l.since, l.lines, l.bySpace, l.withheld = now, 0, map[string]int{}, false
	}
	message := "problem " + cmp.Or(l.Where, "with an object")
	for _, t := range all {
		if !l.admit(t.Problem.Ref.Namespace) {
			continue
		}
		if t.Over {
			l.Log.LogAttrs(context.Background(), slog.LevelInfo, message+" is resolved", LogAttrs(t.Problem)...)
		} else {
			l.Log.LogAttrs(context.Background(), slog.LevelWarn, message, LogAttrs(t.Problem)...)
		}
	}
}

// admit counts a line about an object of the namespace, or logs once a minute that there is no room for some.
func (l *ProblemLog) admit(namespace string) bool {
	if l.lines < problemLines && (namespace == "" || l.bySpace[namespace] < namespaceLines) {
		l.lines++
		if namespace != "" {
			l.bySpace[namespace]++
		}
		return true
	}
	if !l.withheld {
		l.withheld = true
		l.Log.Warn("there are more problems with objects of this kind than are logged; margay show problems has all")
	}
	return false
}
