package syncer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/validate"
)

func TestProblemsAreLoggedOnceAndNotWithoutEnd(t *testing.T) {
	var text bytes.Buffer
	l := &ProblemLog{Log: slog.New(slog.NewTextHandler(&text, nil))}
	problem := func(name, reason string) validate.Problem {
		return validate.Problem{Ref: validate.Ref{Kind: "NetworkPolicy", Namespace: "shop", Name: name}, Severity: validate.Rejected, Reason: reason}
	}
	now := time.Unix(1000, 0)
	said := func() string {
		defer text.Reset()
		return text.String()
	}
	a, b := problem("db", "no selector"), problem("db", "no port")
	l.Write(Turns(nil, []validate.Problem{a}), now)
	if s := said(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "level=WARN") || !strings.Contains(s, "shop/db") || !strings.Contains(s, "no selector") {
		t.Errorf("a new problem: %q", s)
	}
	before := []validate.Problem{a}
	l.Write(Turns(before, []validate.Problem{a}), now)
	if s := said(); s != "" {
		t.Errorf("the same problem again: %q", s)
	}
	l.Write(Turns(before, []validate.Problem{b}), now)
	if s := said(); strings.Count(s, "\n") != 2 || !strings.Contains(s, "resolved") || !strings.Contains(s, "no port") {
		t.Errorf("another problem instead: %q", s)
	}
	var many []validate.Problem
	for i := range 1000 {
		many = append(many, problem(fmt.Sprint(i), "no selector"))
	}
	l.Write(Turns(nil, many), now)
	if s := said(); strings.Count(s, "\n") != namespaceLines-3+1 || !strings.Contains(s, "margay show problems has all") {
		t.Errorf("a thousand problems: %d lines, %q", strings.Count(s, "\n"), s)
	}
	l.Write(Turns(nil, []validate.Problem{a}), now)
	if s := said(); s != "" {
		t.Errorf("within the minute: %q", s)
	}
	l.Write(Turns(nil, []validate.Problem{a}), now.Add(time.Minute))
	if s := said(); strings.Count(s, "\n") != 1 {
		t.Errorf("after it: %q", s)
	}
}

// TestProblemsOfOneNamespaceLeaveRoomInTheLog: a tenant with very many does not keep those of others out of it, and many tenants
// together do not fill it.
func TestProblemsOfOneNamespaceLeaveRoomInTheLog(t *testing.T) {
	const more = "there are more problems"
	problems := func(namespace string, n int) (list []validate.Problem) {
		for i := range n {
			list = append(list, validate.Problem{Ref: validate.Ref{Kind: "NetworkPolicy", Namespace: namespace, Name: fmt.Sprint(i)},
				Severity: validate.Rejected, Reason: "no selector"})
		}
		return list
	}
	var text bytes.Buffer
	l := &ProblemLog{Log: slog.New(slog.NewTextHandler(&text, nil))}
	write := func(p []validate.Problem, now time.Time) (lines, notes int) {
		defer text.Reset()
		l.Write(Turns(nil, p), now)
		notes = strings.Count(text.String(), more)
		return strings.Count(text.String(), "\n") - notes, notes
	}
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		what, namespace string
		problems        int
		after           time.Duration
		lines, notes    int
	}{
		{"a tenant with very many", "aaa", 1000, 0, namespaceLines, 1},
		{"another one with few", "zzz", 3, 0, 3, 0},
		{"the first one a little later", "aaa", 10, time.Second, 0, 0},
		{"a third one", "mmm", 100, time.Second, namespaceLines, 0},
		{"objects without a namespace", "", 100, time.Second, problemLines - 2*namespaceLines - 3, 0},
		{"a fourth tenant, with all lines used up", "nnn", 1, time.Second, 0, 0},
		{"that one in the next minute", "nnn", 1, time.Minute, 1, 0},
		{"the first one then", "aaa", 1000, time.Minute, namespaceLines, 1},
	} {
		if lines, notes := write(problems(c.namespace, c.problems), now.Add(c.after)); lines != c.lines || notes != c.notes {
			t.Errorf("%s: %d lines and %d that there are more, want %d and %d", c.what, lines, notes, c.lines, c.notes)
		}
	}
}
