package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestEachProblemOfAnAttemptIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	p := newProblems(slog.New(slog.NewTextHandler(&out, nil)), "failed", "over")
	logged := func() []string {
		defer out.Reset()
		var lines []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(strings.TrimSpace(line), "msg=")
			lines = append(lines, line)
		}
		return lines
	}
	check := func(what string, want ...string) {
		t.Helper()
		if got := logged(); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: logged %q, want %q", what, got, want)
		}
	}
	a, b := errors.New("a"), errors.New("two\nlines")
	p.report(errors.Join(a, errors.Join(b, a)))
	check("joined errors", `failed err=a`, `failed err="two; lines"`)
	p.report(errors.Join(b, a))
	check("the same ones again")
	p.report(fmt.Errorf("map x: %w: %w", a, b))
	check("an error that wraps two is one", `failed err="map x: a: two; lines"`)
	p.report(nil)
	check("none", "over")
	p.report(nil)
	check("none again")
}

// However often a tenant makes attempts fail, in other words each time, the log has a few lines a minute of it; and the last
// of them says how it is.
func TestProblemsThatChangeAllTheTimeDoNotFillTheLog(t *testing.T) {
	var out bytes.Buffer
	p := newProblems(slog.New(slog.NewTextHandler(&out, nil)), "failed", "over")
	now := time.Unix(1, 0)
	p.now = func() time.Time { return now }
	lines := func() int {
		defer out.Reset()
		return strings.Count(out.String(), "\n")
	}
	for minute := range 3 {
		for i := range 1000 {
			var errs []error
			for endpoint := range 30 {
				errs = append(errs, fmt.Errorf("endpoint %d: %d sets of addresses, limit 10", endpoint, 1000*minute+i))
			}
			p.report(errors.Join(errs...))
			p.report(nil)
			now = now.Add(10 * time.Millisecond)
		}
		if n := lines(); n < minuteLines-mostLines || n > minuteLines {
			t.Errorf("minute %d: %d lines", minute, n)
		}
		now = now.Add(time.Minute)
	}
	p.report(nil)
	if text := out.String(); !strings.Contains(text, "msg=over") {
		t.Errorf("that all are over is not said once there is room: %s", text)
	}
	out.Reset()
	p.report(errors.New("another"))
	p.report(nil)
	p.report(nil)
	if text := out.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "another") {
		t.Errorf("afterwards: %s", text)
	}
}
