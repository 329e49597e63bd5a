package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/validate"
)

// TestSeveritiesAreDocumented: operations.md has a row for each severity that margay check prints, and no other.
func TestSeveritiesAreDocumented(t *testing.T) {
	_, table, ok := strings.Cut(documents(t)["docs/operations.md"], "| severity | meaning |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\|").FindAllStringSubmatch(table, -1) {
		named = append(named, m[1])
	}
	want := []string{inspect.SeverityLint, inspect.SeverityEndpoint}
	for _, s := range []validate.Severity{validate.Warning, validate.RulesLeftOut, validate.Rejected} {
		want = append(want, s.String())
	}
	slices.Sort(want)
	slices.Sort(named)
	if !ok || !slices.Equal(want, named) {
		t.Errorf("operations.md has the severities %q, check prints %q", named, want)
	}
}
