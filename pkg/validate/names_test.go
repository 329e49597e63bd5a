package validate

import (
	"strings"
	"testing"
)

// The name of a rule is shown on terminals: one line, bounded.
func TestRuleNameIsOneBoundedLine(t *testing.T) {
	if got := RuleName("allow-dns"); got != "allow-dns" {
		t.Errorf("%q", got)
	}
	if got := RuleName("a\nb\x1b[31m"); got != `a\nb\x1b[31m` {
		t.Errorf("%q", got)
	}
	if got := RuleName(strings.Repeat("ä", 1000)); len(got) > maxRuleName+3 || !strings.HasSuffix(got, "ä...") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
