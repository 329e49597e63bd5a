package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/inspect"
)

func TestVerificationIsPrinted(t *testing.T) {
	r := &inspect.Verification{Endpoints: 1, Questions: 7, Took: inspect.VerificationCost{Seconds: 0.002, CPUSeconds: 0.001}}
	written := func(most int) string {
		var b strings.Builder
		if err := writeVerification(&b, r, most); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	r.Proven = true
	if got, want := written(3), "proven: 1 endpoint verified with 7 packets in 2ms, 1ms of CPU\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Proven = false
	r.NotProven = []inspect.NotProvenRow{{Namespace: "shop", Name: "db", Reason: "waiting for its interface"}}
	if got, want := written(3), "not proven: shop/db: waiting for its interface\nnot proven: 1 endpoint verified"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	r.NotProven = append(r.NotProven, inspect.NotProvenRow{Part: "IP set mgyA4-own", Reason: "it was made during the reading"})
	if got, want := written(3), "not proven: IP set mgyA4-own: it was made during the reading\nnot proven: 1 endpoint verified"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 5 {
		r.Differences = append(r.Differences, inspect.DifferenceRow{Namespace: "shop", Name: "web", Direction: "ingress", Packet: "p", Evaluator: "decision table",
			Text: fmt.Sprint("text ", i)})
	}
	r.Differences = append(r.Differences, inspect.DifferenceRow{Text: "slot 1 is altered"})
	want := `differs: text 0
differs: text 1
differs: text 2
differs: slot 1 is altered
differs: shop/web ingress: the decision table judges 2 packets more otherwise; -o wide prints all
not proven: shop/db: waiting for its interface
not proven: IP set mgyA4-own: it was made during the reading
6 differences: 1 endpoint verified with 7 packets in 2ms, 1ms of CPU
`
	if got := written(3); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := written(100); strings.Contains(got, "more") || !strings.Contains(got, "text 4") {
		t.Errorf("all: got\n%s", got)
	}
}

// An agent that answers without a report is of another version: the error names the agent and what to compare.
func TestVerifyNamesAnAgentWithoutAReport(t *testing.T) {
	a := newAnswers(t)
	var out bytes.Buffer
	status := execute(t.Context(), []string{"verify", "--socket", a.socket}, &out, &out)
	if text := out.String(); status != 2 || !strings.Contains(text, "verify: the agent on "+a.socket+" sent no report") || !strings.Contains(text, "margay version") {
		t.Errorf("status %d: %s", status, text)
	}
}
