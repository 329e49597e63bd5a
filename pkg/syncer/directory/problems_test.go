package directory

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/validate"
)

// TestProblemsInTheDirectoryDoNotFillTheLog: neither many at once, of whatever kinds, nor one that comes and goes.
func TestProblemsInTheDirectoryDoNotFillTheLog(t *testing.T) {
	const limit = 20 + 1 // the limit of package syncer, and the line that there are more
	problem := func(kind, namespace string, i int) validate.Problem {
		return validate.Problem{Ref: validate.Ref{File: fmt.Sprintf("%d.yaml", i), Line: i, Kind: kind, Namespace: namespace, Name: "x"},
			Severity: validate.Rejected, Reason: "no"}
	}
	for what, c := range map[string]struct {
		of   func(i int) validate.Problem
		want int // lines
	}{
		"broken files":   {func(i int) validate.Problem { return fileProblem(fmt.Sprint(i), validate.Rejected, errEmpty) }, limit},
		"invented kinds": {func(i int) validate.Problem { return problem(fmt.Sprintf("Kind%d", i), "", i) }, limit},
		"a known kind":   {func(i int) validate.Problem { return problem("Namespace", "", i) }, limit},
		"one namespace":  {func(i int) validate.Problem { return problem("NetworkPolicy", "shop", i) }, 5 + 1},
	} {
		t.Run(what, func(t *testing.T) {
			var text bytes.Buffer
			many := map[string][]validate.Problem{}
			for i := range 500 {
				many[fmt.Sprint(i)] = []validate.Problem{c.of(i)}
			}
			l, now := newProblemLog(slog.New(slog.NewTextHandler(&text, nil))), time.Unix(1000, 0)
			for range 100 {
				l.write(many, now)
				l.write(nil, now)
			}
			if lines := strings.Count(text.String(), "\n"); lines != c.want || !strings.Contains(text.String(), "margay show problems has all") {
				t.Errorf("%d lines in a minute, want %d, one of them that there are more:\n%s", lines, c.want, &text)
			}
			text.Reset()
			l.write(map[string][]validate.Problem{"0": many["0"]}, now.Add(time.Minute))
			if lines := strings.Count(text.String(), "problem in the directory"); lines != 1 {
				t.Errorf("%d lines of a problem in the next minute:\n%s", lines, &text)
			}
		})
	}
}

// TestProblemsThatMoveAreNotLoggedAgain: an edit further up in the file is no new problem.
func TestProblemsThatMoveAreNotLoggedAgain(t *testing.T) {
	var text bytes.Buffer
	l := newProblemLog(slog.New(slog.NewTextHandler(&text, nil)))
	for line := range 3 {
		p := validate.Problem{Ref: validate.Ref{File: "a.yaml", Line: line + 1, Kind: "Pod", Name: "x"}, Severity: validate.Rejected, Reason: "no"}
		l.write(map[string][]validate.Problem{"3 a.yaml": {p}}, time.Unix(1000, 0))
	}
	if s := text.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "a.yaml:1") {
		t.Errorf("one problem is logged as %q", s)
	}
}
