//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// configOptions are the flags of config.
type configOptions struct {
	settings settingFlags
	output   outputFlag
	all      bool
	local    bool
	felix    bool
}

func configCommand() *cobra.Command {
	var o configOptions
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting's value and where it comes from",
		Long: `Shows the settings of the running agent. With --local, or with the flag of a setting, it shows the settings that an
agent would have if it were started with these flags, this environment and this file. It does the same if no agent
runs. FelixConfigurations count then only if the datastore is a directory.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	fs := cmd.Flags()
	fs.BoolVar(&o.all, "all", false, "show overridden values, too")
	fs.BoolVar(&o.local, "local", false, "do not ask the agent")
	fs.BoolVar(&o.felix, "felix", false, "show the fields of a FelixConfiguration, and the settings they set")
	o.output.register(fs)
	o.settings.register(fs)
	return cmd
}

func (o *configOptions) run(cmd *cobra.Command) error {
	if o.felix {
		fields := config.FelixFields()
		return o.output.writeTable(cmd.OutOrStdout(), felixRows(fields), felixTable(fields))
	}
	rows, err := o.rows(cmd)
	if err != nil {
		return err
	}
	return o.output.writeTable(cmd.OutOrStdout(), rows, configTable(rows, o.all))
}

// rows are the agent's settings, or those that one would have. Errors in the file do not matter to an agent
// that runs.
func (o *configOptions) rows(cmd *cobra.Command) ([]inspect.ConfigRow, error) {
	if of, other := o.settings.instance(); !o.local && !other {
		answer, err := of.ask(cmd.Context(), "/v1/config", nil)
		if err == nil {
			return answer.Config, nil
		}
		if !errors.Is(err, inspect.ErrNotRunning) {
			return nil, err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "no agent answers on %s: these are the settings that an agent started now would have\n", of.socketPath())
	}
	layers, warnings, err := o.settings.layers()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		fmt.Fprintln(cmd.ErrOrStderr(), "margay: warning:", w)
	}
	if err := withDirectory(cmd.Context(), cmd.ErrOrStderr(), layers); err != nil {
		return nil, err
	}
	return agent.ConfigRows(layers.Values()), nil
}

// instance is the agent that flags and environment mean, as all tools have it, and whether there are flags of other
// settings.
func (f *settingFlags) instance() (of instanceFlags, other bool) {
	for name, at := range map[string]*string{"instance": &of.instance, "bpffs": &of.bpffs, "socket": &of.socket} {
		*at = config.FromEnvironment(os.Environ(), name)
		for _, g := range f.given {
			if g.Name == name {
				*at = g.Value
			}
		}
	}
	return of, slices.ContainsFunc(f.given, func(g config.Flag) bool {
		return !slices.Contains([]string{"instance", "bpffs", "socket"}, g.Name)
	})
}

// withDirectory adds the configuration in a directory of manifests, if the objects are to come from one.
func withDirectory(ctx context.Context, stderr io.Writer, layers *config.Layers) error {
	c := layers.Config()
	if c.Datastore != "directory" || c.Dir == "" {
		return nil
	}
	m, err := loadDirectory(ctx, c.Dir)
	if err != nil {
		return err
	}
	layers.Apply(m.updates)
	for _, p := range layers.Problems() {
		fmt.Fprintln(stderr, "margay: warning:", p)
	}
	return nil
}

func configTable(rows []inspect.ConfigRow, all bool) *table {
	t := &table{header: []string{"SETTING", "VALUE", "FROM"}, none: "no settings"}
	for _, r := range rows {
		t.add(r.Name, r.Value, r.Source)
		for _, o := range r.Overridden {
			if all {
				t.add("  overridden", o.Value, o.Source)
			}
		}
	}
	return t
}

// felixRow is what becomes of one field of a FelixConfiguration.
type felixRow struct {
	Field    string   `json:"field"`
	Settings []string `json:"settings"` // empty: it is not used
	Note     string   `json:"note,omitempty"`
}

func felixRows(fields []config.FelixField) []felixRow {
	rows := make([]felixRow, 0, len(fields))
	for _, f := range fields {
		rows = append(rows, felixRow{Field: f.Field, Settings: orEmpty(f.Settings), Note: f.Why})
	}
	return rows
}

func felixTable(fields []config.FelixField) *table {
	t := &table{header: []string{"FIELD", "SETTING", "NOTE"}}
	for _, f := range fields {
		settings := strings.Join(f.Settings, ",")
		if settings == "" {
			settings = "not used"
		}
		t.add(f.Field, settings, f.Why)
	}
	return t
}
