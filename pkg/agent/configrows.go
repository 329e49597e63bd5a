package agent

import (
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/validate"
)

// ConfigRows are the values of all settings as tools get them.
func ConfigRows(values []config.Value) []inspect.ConfigRow {
	rows := make([]inspect.ConfigRow, 0, len(values))
	for _, v := range values {
		row := inspect.ConfigRow{Name: v.Setting, Value: v.Text, Source: v.Source, Effect: v.Effect.String(),
			Overridden: []inspect.ConfigValue{}}
		for _, o := range v.Overridden {
			row.Overridden = append(row.Overridden, inspect.ConfigValue{Value: o.Text, Source: o.Source})
		}
		rows = append(rows, row)
	}
	return rows
}

// configProblems returns the errors of the datastore's configuration as problems of objects.
func configProblems(s *config.Layers) []validate.Problem {
	var all []validate.Problem
	for _, p := range s.Problems() {
		all = append(all, validate.Problem{Ref: validate.Ref{Kind: "FelixConfiguration", Name: p.Object},
			Severity: validate.Warning, Field: "spec." + p.Field, Reason: p.Reason})
	}
	return all
}
