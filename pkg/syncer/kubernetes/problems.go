package kubernetes

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// turn is a problem of an object that came or went.
type turn struct {
	problem validate.Problem
	over    bool
}

// turns are how the problems of an object changed, those that are new first.
func turns(old, now []validate.Problem) (all []turn) {
	for _, p := range now {
		if !slices.Contains(old, p) {
			all = append(all, turn{problem: p})
		}
	}
	for _, p := range old {
		if !slices.Contains(now, p) {
			all = append(all, turn{problem: p, over: true})
		}
	}
	return all
}

// problemLines are how many lines the log has in a minute about problems of one kind: a cluster can have thousands.
const problemLines = 20

// problemLog tells the log of problems. Not safe for concurrent use.
type problemLog struct {
	log   *slog.Logger
	since time.Time // of the minute
	lines int
}

func (l *problemLog) write(all []turn, now time.Time) {
	if now.Sub(l.since) >= time.Minute {
		l.since, l.lines = now, 0
	}
	for _, t := range all {
		if l.lines++; l.lines > problemLines {
			if l.lines == problemLines+1 {
				l.log.Warn("there are more problems with objects of this kind than are logged; margay show problems has all")
			}
			return
		}
		if t.over {
			l.log.LogAttrs(context.Background(), slog.LevelInfo, "problem with an object is resolved", syncer.LogAttrs(t.problem)...)
		} else {
			l.log.LogAttrs(context.Background(), slog.LevelWarn, "problem with an object", syncer.LogAttrs(t.problem)...)
		}
	}
}
