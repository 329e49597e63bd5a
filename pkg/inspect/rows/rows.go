// Package rows makes rows of problems for tools and for margay check.
package rows

import (
	"fmt"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Problem is a problem of an object as a row.
func Problem(p validate.Problem) inspect.ProblemRow {
	row := inspect.ProblemRow{Severity: p.Severity.String(), Object: p.Ref.String(), Field: p.Field, Reason: p.Reason, Namespace: p.Ref.Namespace}
	if p.Ref.Kind == "Namespace" {
		row.Namespace = p.Ref.Name
	}
	return row
}

// GraphProblem is a problem of how objects fit together as a row.
func GraphProblem(p calc.Problem) inspect.ProblemRow {
	return inspect.ProblemRow{Severity: validate.Warning.String(), Object: p.Object, Reason: p.Text, Namespace: p.Namespace}
}

// Finding is a finding about a policy, or about a pod whose policy is not enforced, as a row.
func Finding(f lint.Finding) inspect.ProblemRow {
	if f.Endpoint != (model.EndpointID{}) {
		return inspect.ProblemRow{Severity: inspect.SeverityEndpoint, Object: "Pod " + f.Endpoint.String(), Reason: f.Text, Namespace: f.Endpoint.Namespace}
	}
	row := inspect.ProblemRow{Severity: inspect.SeverityLint, Object: f.Policy.ObjectText(), Reason: f.Text, Namespace: f.Policy.Namespace}
	if f.Rule >= 0 {
		row.Field = fmt.Sprintf("%s[%d]", f.Direction, f.Rule)
	}
	return row
}
