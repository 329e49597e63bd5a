package agent

import (
	"github.com/margay-project/margay/pkg/agent/wire"
	"github.com/margay-project/margay/pkg/config"
)

// ConfigRows are the values of all settings as tools get them.
func ConfigRows(values []config.Value) []wire.ConfigRow {
	rows := make([]wire.ConfigRow, 0, len(values))
	for _, v := range values {
		row := wire.ConfigRow{Name: v.Setting, Value: v.Text, Source: v.Source, Effect: v.Effect.String(),
			Overridden: []wire.ConfigValue{}}
		for _, o := range v.Overridden {
			row.Overridden = append(row.Overridden, wire.ConfigValue{Value: o.Text, Source: o.Source})
		}
		rows = append(rows, row)
	}
	return rows
}
