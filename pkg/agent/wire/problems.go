package wire

import (
	"fmt"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/validate"
)

// SeverityLint is the severity of policy that is enforced as written, and most likely not what was meant.
const SeverityLint = "lint"

// Problem is a problem of an object as a row.
func Problem(p validate.Problem) ProblemRow {
	return ProblemRow{Severity: p.Severity.String(), Object: p.Ref.String(), Field: p.Field, Reason: p.Reason}
}

// GraphProblem is a problem of how objects fit together as a row.
func GraphProblem(p calc.Problem) ProblemRow {
	return ProblemRow{Severity: validate.Warning.String(), Object: p.Object, Reason: p.Text}
}

// Finding is a finding about a policy as a row.
func Finding(f lint.Finding) ProblemRow {
	row := ProblemRow{Severity: SeverityLint, Object: f.Policy.ObjectText(), Reason: f.Text}
	if f.Rule >= 0 {
		row.Field = fmt.Sprintf("%s[%d]", f.Direction, f.Rule)
	}
	return row
}
