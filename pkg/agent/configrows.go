package agent

import (
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
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
