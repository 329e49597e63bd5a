package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatAGuestSaysIsUnderstood(t *testing.T) {
	output, result := "--- PASS: TestX", Result{Job: "bpf", Status: 1, Took: 2.5, Err: "limit of 1m0s"}
	report := Report{Kernel: "6.12", Uptime: 3, Faults: []string{"BUG: x"}}
	for line, want := range map[string]Line{
		OutputLine(output) + "\r\n": {Output: &output},
		ResultLine(result) + "\r":   {Result: &result},
		ReportLine(report):          {Report: &report},
		"[ 1.0] Kernel panic":       {Kernel: "[ 1.0] Kernel panic"},
		`@result {"Job": "bp`:       {Kernel: `@result {"Job": "bp`},
	} {
		if diff := cmp.Diff(want, Parse(line)); diff != "" {
			t.Errorf("%q: %s", line, diff)
		}
	}
}
