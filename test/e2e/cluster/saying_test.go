package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
)

// What an agent says: by its tools, its probes, its metrics and its log.

// step runs a part of a test that has its cluster in common with others.
func (c *cluster) step(name string, do func()) {
	whole, ok := c.t.(*testing.T)
	if !ok {
		c.t.Fatalf("%T has no parts", c.t)
	}
	whole.Run(name, func(t *testing.T) {
		defer func() { c.t = whole }()
		c.t = t
		do()
	})
}

// contains demands all of the words.
func (c *cluster) contains(what, text string, words ...string) {
	c.t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			c.t.Errorf("%s: want %q, got %q", what, w, text)
		}
	}
}

// tool runs one of the agent's commands, such as show status, and returns what it prints.
func (a *agent) tool(args ...string) string {
	a.c.t.Helper()
	ctx, cancel := context.WithTimeout(a.c.t.Context(), soon)
	defer cancel()
	out, err := exec.CommandContext(ctx, a.binary, append(args, "--socket", a.socket())...).CombinedOutput()
	if err != nil {
		a.c.t.Errorf("margay %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// kind is what the agent says of a kind of object; nil if it does not answer.
func (a *agent) kind(name string) *inspect.KindRow {
	answer, err := a.ask("status")
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(answer.Status.Kinds, func(k inspect.KindRow) bool { return k.Kind == name })
	if i < 0 {
		return nil
	}
	return &answer.Status.Kinds[i]
}

// awaitKind waits until the kind is in the state.
func (a *agent) awaitKind(name, state string) *inspect.KindRow {
	a.c.t.Helper()
	var k *inspect.KindRow
	testutil.WaitFor(a.c.t, 3*soon, name+" to be "+state+" for the agent on "+a.node.Name(), func() bool {
		k = a.kind(name)
		return k != nil && k.State == state
	})
	return k
}

// awaitKindError waits until the kind is in the state for that reason.
func (a *agent) awaitKindError(name, state, reason string) {
	a.c.t.Helper()
	testutil.WaitFor(a.c.t, 3*soon, name+" to be "+state+" because "+reason, func() bool {
		k := a.kind(name)
		return k != nil && k.State == state && k.Error == reason
	})
}

// awaitProbe waits until /readyz answers with the status and all of the words: what it says is renewed every two seconds.
func (a *agent) awaitProbe(status int, words ...string) {
	a.c.t.Helper()
	over := time.Now().Add(soon)
	for {
		code, body := a.get(healthPort, "/readyz")
		if code == status && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(body, w) }) {
			return
		}
		if time.Now().After(over) {
			a.c.t.Fatalf("/readyz of the agent on %s: want %d with %q, got %d: %s", a.node.Name(), status, words, code, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// logged is how much the agent, and earlier ones on its node, have printed.
func (a *agent) logged() int64 {
	a.c.t.Helper()
	info, err := os.Stat(a.logFile())
	if os.IsNotExist(err) {
		return 0
	}
	a.c.must(err)
	return info.Size()
}

// lines are those that came after so much was printed.
func (a *agent) lines(from int64) (lines []string) {
	a.c.t.Helper()
	text, err := os.ReadFile(a.logFile())
	a.c.must(err)
	for line := range bytes.Lines(text[from:]) {
		lines = append(lines, strings.TrimSuffix(string(line), "\n"))
	}
	return lines
}

// complaints are the lines of the log's levels for people, and what is no log at all, after so much was printed. Values
// are not quoted.
func (a *agent) complaints(from int64) (lines []string) {
	a.c.t.Helper()
	for _, line := range a.lines(from) {
		fields := map[string]any{}
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			lines = append(lines, line)
			continue
		}
		// Of the environment it says that the tests' own variables are none of it.
		if fields["level"] != "WARN" && fields["level"] != "ERROR" || fields["msg"] == "configuration" {
			continue
		}
		text := fmt.Sprint(fields["level"], " ", fields["msg"])
		for _, key := range []string{"kind", "object", "field", "err", "reason", "after"} {
			if v, ok := fields[key]; ok {
				text += fmt.Sprintf(" %s=%v", key, v)
			}
		}
		lines = append(lines, text)
	}
	return lines
}

// once waits for a complaint with all of the words, and demands that there is one only.
func (c *cluster) once(a *agent, from int64, words ...string) {
	c.t.Helper()
	var with []string
	over := time.Now().Add(soon)
	for {
		with = slices.DeleteFunc(a.complaints(from), func(line string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		})
		if len(with) > 0 || time.Now().After(over) {
			break
		}
		time.Sleep(20 * time.Millisecond) // the log is a file
	}
	if len(with) != 1 {
		c.t.Errorf("want one line with %q, got %d: %q\nall: %q", words, len(with), with, a.complaints(from))
	}
}
