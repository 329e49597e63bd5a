//go:build linux

package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
)

// painted is what a writer writes on a screen with colours.
func painted(t *testing.T, write func(*screen) error) string {
	t.Helper()
	var out bytes.Buffer
	if err := write(newScreen(&out, "always")); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestVerdictsHaveColoursOutsideOfTables(t *testing.T) {
	side := func(verdict string) *explain.Side {
		return &explain.Side{Verdict: verdict, Decision: explain.DecisionEndOfTier, Reason: "because"}
	}
	flow := func(verdict string) *explain.Explanation {
		return &explain.Explanation{Verdict: verdict, Src: "a", Dst: "b", Flow: &explain.Flow{Protocol: "tcp", Port: 1},
			Egress: side(explain.VerdictAllow), Ingress: side(verdict)}
	}
	explanation := func(e *explain.Explanation) func(*screen) error {
		return func(s *screen) error { return writeExplanation(s, e) }
	}
	problem := &checkReport{Problems: []inspect.ProblemRow{{Severity: "rejected", Object: "x", Reason: "wrong"}, {Severity: "lint", Reason: "odd"}}}
	for name, c := range map[string]struct {
		write func(*screen) error
		want  []string
	}{
		"explain": {explanation(flow("deny")), []string{
			red + "deny" + plain + ": a -> b\n", "egress   " + green + "allow" + plain + ": because\n", "ingress  " + red + "deny" + plain + ": because\n"}},
		"explain of several": {explanation(&explain.Explanation{Verdict: "mixed", Answers: []*explain.Explanation{flow("deny"), flow("allow")}}), []string{
			yellow + "mixed" + plain + ":", "\n  " + red + "deny" + plain + "     a -> b", "\n  " + green + "allow" + plain + "    a -> b"}},
		"check":           {func(s *screen) error { return writeCheck(s, problem) }, []string{"x: " + red + "rejected" + plain + ": wrong", yellow + "lint" + plain + ": odd", red + "2 problems" + plain}},
		"check, all well": {func(s *screen) error { return writeCheck(s, &checkReport{OK: true}) }, []string{"check: " + green + "all is well" + plain}},
		"status":          {func(s *screen) error { return writeStatus(s, &inspect.StatusReport{Ready: true}) }, []string{green + "ready: policy of 0 endpoints is enforced" + plain}},
		"status, held back": {func(s *screen) error {
			return writeStatus(s, &inspect.StatusReport{Ready: true, Attempts: inspect.Attempts{Held: "x"}})
		}, []string{yellow + "ready, with 1 policy held back: x" + plain}},
		"status, not ready": {func(s *screen) error { return writeStatus(s, &inspect.StatusReport{}) }, []string{red + "not ready: waiting"}},
	} {
		t.Run(name, func(t *testing.T) {
			out := painted(t, c.write)
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%q", want, out)
				}
			}
			var bare bytes.Buffer
			if err := c.write(newScreen(&bare, "auto")); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(bare.String(), "\x1b") {
				t.Errorf("colours where there is no terminal: %q", bare.String())
			}
			for _, code := range []string{red, green, yellow, bold, plain} {
				out = strings.ReplaceAll(out, code, "")
			}
			if out != bare.String() {
				t.Errorf("colours change the text:\n%s\nwithout them:\n%s", out, bare.String())
			}
		})
	}
}
