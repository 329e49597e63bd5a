package agent

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
)

// mostLines bounds how many new problems of one attempt are logged.
const mostLines = 20

// problems says each distinct problem once, however often an attempt ends with it, and that all of them are over.
type problems struct {
	log    *slog.Logger
	failed string // said of a problem
	over   string // said when there is none any more
	known  map[string]bool
}

func newProblems(log *slog.Logger, failed, over string) *problems {
	return &problems{log: log, failed: failed, over: over, known: map[string]bool{}}
}

// say takes note of how an attempt ended. Errors that are joined are problems of their own.
func (p *problems) say(err error) {
	if err == nil {
		if len(p.known) > 0 {
			p.log.Info(p.over)
			clear(p.known)
		}
		return
	}
	now, said, more := map[string]bool{}, 0, 0
	for _, problem := range joined(err) {
		text := strings.ReplaceAll(problem.Error(), "\n", "; ")
		if now[text] {
			continue
		}
		now[text] = true
		switch {
		case p.known[text]:
		case said == mostLines:
			more++
		default:
			p.log.Error(p.failed, "err", text)
			said++
		}
	}
	if more > 0 {
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
