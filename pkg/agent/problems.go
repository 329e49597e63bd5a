package agent

import (
	"log/slog"
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

// say takes note of how an attempt ended.
func (p *problems) say(err error) {
	if err == nil {
		if len(p.known) > 0 {
			p.log.Info(p.over)
			clear(p.known)
		}
		return
	}
	now, said, more := map[string]bool{}, 0, 0
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if now[line] {
			continue
		}
		now[line] = true
		switch {
		case p.known[line]:
		case said == mostLines:
			more++
		default:
			p.log.Error(p.failed, "err", line)
			said++
		}
	}
	if more > 0 {
		p.log.Error(p.failed, "more", more)
	}
	p.known = now
}
