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

// configProblems returns the errors of the datastore's configuration as problems of objects, and that of the file as one of the node.
func configProblems(s *config.Layers) []validate.Problem {
	var all []validate.Problem
	if err := s.FileErr(); err != nil {
		all = append(all, validate.Problem{Ref: validate.Ref{Kind: "Node", Name: s.Config().Node}, Severity: validate.Rejected,
			Reason: "the configuration file cannot be used: " + err.Error() + "; its last valid version stays in force until the agent " +
				"starts again, and then it ends at once: correct the file"})
	}
	for _, p := range s.Problems() {
		all = append(all, validate.Problem{Ref: validate.Ref{Kind: "FelixConfiguration", Name: p.Object},
			Severity: validate.Warning, Field: "spec." + p.Field, Reason: p.Reason})
	}
	return all
}
