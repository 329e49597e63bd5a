package wire

import (
	"fmt"

	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// SeverityLint is the severity of policy that is enforced as written, and most likely not what was meant.
const SeverityLint = "lint"

// Problem is a problem of an object as a row.
func Problem(p validate.Problem) ProblemRow {
	return ProblemRow{Severity: p.Severity.String(), Object: p.Ref.String(), Field: p.Field, Reason: p.Reason}
}

// LintRow is a finding about a policy.
type LintRow struct {
	ProblemRow
	Policy model.PolicyKey
}

// Lint looks at the policies among the objects.
func Lint(updates []model.Update) []LintRow {
	rows := []LintRow{}
	for _, f := range lint.Check(updates) {
		_, kind := APIKind(f.Policy.Kind)
		name := f.Policy.Name
		if f.Policy.Namespace != "" {
			name = f.Policy.Namespace + "/" + name
		}
		row := LintRow{ProblemRow{Severity: SeverityLint, Object: kind + " " + name, Reason: f.Text}, f.Policy}
		if f.Rule >= 0 {
			row.Field = fmt.Sprintf("%s[%d]", f.Direction, f.Rule)
		}
		rows = append(rows, row)
	}
	return rows
}
