package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
	p.say(errors.Join(a, errors.Join(b, a)))
	check("joined errors", `failed err=a`, `failed err="two; lines"`)
	p.say(errors.Join(b, a))
	check("the same ones again")
	p.say(fmt.Errorf("map x: %w: %w", a, b))
	check("an error that wraps two is one", `failed err="map x: a: two; lines"`)
	p.say(nil)
	check("none", "over")
	p.say(nil)
	check("none again")
}
