package directory

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// problemsOf returns the present problems, by subject: directories that cannot be read, then the one that is not watched,
// then files in path order.
func (d *Source) problemsOf(found *listing) map[string][]validate.Problem {
	all := map[string][]validate.Problem{}
	for path, err := range found.unreadable {
		if d.catalog.files[path] == nil {
			p := fileProblem(path, validate.Rejected, err)
			p.Reason += "; the objects last read from it stay in force"
			all["1 "+path] = []validate.Problem{p}
		}
	}
	if unwatched := slices.Sorted(maps.Keys(found.unwatched)); len(unwatched) > 0 {
		p := fileProblem(unwatched[0], validate.Warning, found.unwatched[unwatched[0]])
		p.Reason = fmt.Sprintf("%d of %d directories are not watched, this is the first; changes there are noticed within %v: %s",
			len(unwatched), len(found.dirs), d.backstop, p.Reason)
		all["2"] = []validate.Problem{p}
	}
	for path, problems := range d.catalog.faults {
		all["3 "+path] = problems
	}
	return all
}

// problemLog writes problems to the log: those of each kind up to the limit of a minute, and all those of kinds that are not known, and of
// files themselves, as those of one kind.
type problemLog struct {
	log      *slog.Logger
	kinds    map[string]*syncer.ProblemLog // by kinds.Label
	reported map[validate.Problem]bool     // what was written or left out, without lines
}

func newProblemLog(log *slog.Logger) problemLog {
	return problemLog{log: log, kinds: map[string]*syncer.ProblemLog{}, reported: map[validate.Problem]bool{}}
}

// write logs problems, given by subject, that are new, and those that are over.
func (l *problemLog) write(problems map[string][]validate.Problem, at time.Time) {
	now, turns := map[validate.Problem]bool{}, map[string][]syncer.Turn{}
	for _, subject := range slices.Sorted(maps.Keys(problems)) {
		for _, p := range problems[subject] {
			said := p
			p.Ref.Line = 0 // an edit further up is not a new problem
			if kind := kinds.Label(p.Ref.Kind); !l.reported[p] && !now[p] {
				turns[kind] = append(turns[kind], syncer.Turn{Problem: said})
			}
			now[p] = true
		}
	}
	for p := range l.reported {
		if kind := kinds.Label(p.Ref.Kind); !now[p] {
			turns[kind] = append(turns[kind], syncer.Turn{Problem: p, Over: true})
		}
	}
	l.reported = now
	for _, kind := range slices.Sorted(maps.Keys(turns)) {
		if l.kinds[kind] == nil {
			l.kinds[kind] = &syncer.ProblemLog{Log: l.log.With("kind", kind), Where: "in the directory"}
		}
		l.kinds[kind].Write(turns[kind], at)
	}
}

func fileProblem(path string, s validate.Severity, err error) validate.Problem {
	return validate.Problem{Ref: validate.Ref{File: path}, Severity: s, Reason: err.Error()}
}
