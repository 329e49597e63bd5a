package agent

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"time"
)

// Limits of the log of problems: for one attempt, and for all attempts in a minute. A tenant can have attempts fail, each in
// other words, as often as it changes its policy.
const (
	mostLines   = 20
	minuteLines = 60
)

// problems logs each distinct problem once, however often an attempt ends with it, and that all of them are over.
type problems struct {
	log    *slog.Logger
	failed string // said of a problem
	over   string // said when there is none any more
	known  map[string]bool
	unsaid bool // that all are over: there was no line left for it

	now    func() time.Time
	minute time.Time // when the minute began
	lines  int       // in it
}

func newProblems(log *slog.Logger, failed, over string) *problems {
	return &problems{log: log, failed: failed, over: over, known: map[string]bool{}, now: time.Now}
}

// mayLog reports whether the limit of this minute leaves room for a line, and counts it. The last one says that more are left
// out.
func (p *problems) mayLog() bool {
	if now := p.now(); now.Sub(p.minute) >= time.Minute {
		p.minute, p.lines = now, 0
	}
	if p.lines++; p.lines == minuteLines {
		p.log.Warn("further lines like this one are left out for a minute; margay show status has the current state", "about", p.failed)
	}
	return p.lines < minuteLines
}

// report logs the errors of an attempt that are not logged yet. Errors that are joined are problems of their own.
func (p *problems) report(err error) {
	if err == nil {
		if p.unsaid = p.unsaid || len(p.known) > 0; p.unsaid && p.mayLog() {
			p.log.Info(p.over)
			p.unsaid = false
		}
		clear(p.known)
		return
	}
	p.unsaid = false
	now, said, more := map[string]bool{}, 0, 0
	for _, problem := range joined(err) {
		text := strings.ReplaceAll(problem.Error(), "\n", "; ")
		if now[text] {
			continue
		}
		now[text] = true
		switch {
		case p.known[text]:
		case said == mostLines || !p.mayLog():
			more++
		default:
			p.log.Error(p.failed, "err", text)
			said++
		}
	}
	if more > 0 && p.mayLog() {
		p.log.Error(p.failed, "more", more)
	}
	p.known = now
}

// joinedError is the type of errors that errors.Join makes. Others wrap several, too, and have a text of their own.
var joinedError = reflect.TypeOf(errors.Join(errors.ErrUnsupported))

// joined are the errors that were joined to err, or err alone.
func joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || reflect.TypeOf(err) != joinedError {
		return []error{err}
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, joined(e)...)
	}
	return all
}
