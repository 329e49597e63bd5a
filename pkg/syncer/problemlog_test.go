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
	if s := said(); strings.Count(s, "\n") != problemLines-3+1 || !strings.Contains(s, "margay show problems has all") {
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
