package agent

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/inspect/rows"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
)

// lint works on a copy, as explain does.
func (a *API) lint(r *http.Request) (inspect.Answer, error) {
	var part *calc.Part
	var leftOut []model.PolicyKey
	if err := a.Loop.Query(r.Context(), func(v View) { part, leftOut = v.Graph.Sample() }); err != nil {
		return inspect.Answer{}, err
	}
	return inspect.Answer{Problems: append(lintRows(lint.Check(part.Objects())), unlinted(leftOut)...)}, nil
}

// unlinted says of each namespace with policies that an agent does not check, or of cluster-wide ones.
func unlinted(policies []model.PolicyKey) []inspect.ProblemRow {
	of := map[string]int{}
	for _, key := range policies {
		of[key.Namespace]++
	}
	var list []inspect.ProblemRow
	for _, namespace := range slices.Sorted(maps.Keys(of)) {
		list = append(list, inspect.ProblemRow{Severity: inspect.SeverityLint, Namespace: namespace, Object: strings.TrimSpace("policies " + namespace), Reason: fmt.Sprintf(
			"%d have too many rules to be checked by an agent, which enforces nothing meanwhile; margay check with --datastore checks all", of[namespace])})
	}
	return list
}

// lintRows are the findings about policies. That the policy of a pod is refused is reported by the agent of its node, of the endpoint.
func lintRows(found []lint.Finding) []inspect.ProblemRow {
	list := []inspect.ProblemRow{}
	for _, f := range found {
		if f.Endpoint == (model.EndpointID{}) {
			list = append(list, rows.Finding(f))
		}
	}
	return list
}
