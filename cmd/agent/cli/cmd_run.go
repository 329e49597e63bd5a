//go:build linux

package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/kube"
)

func runCommand() *cobra.Command {
	var settings settingFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent: watch the datastore and enforce its policy on this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			layers, warnings, err := settings.layers(cmd)
			if err != nil {
				return err
			}
			return run(cmd.Context(), layers, warnings)
		},
	}
	settings.register(cmd.Flags())
	return cmd
}

// run runs the agent until ctx ends; from the beginning, but in this process, whenever its configuration takes that.
// What is enforced stays enforced all the while: links and maps are pinned.
func run(ctx context.Context, layers *config.Layers, warnings []string) error {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(layers.Config().LogLevel)); err != nil {
		return err
	}
	log := newLogger(os.Stderr, level)
	kube.QuietLibrary(log)
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
	files := followFile(ctx, layers.Config().ConfigFile, log)
	for {
		p, err := assemble(layers, files, level, log)
		if err != nil {
			return err
		}
		err = p.run(ctx)
		if !errors.Is(err, agent.ErrRestart) {
			return err
		}
		log.Info("starting anew within the process", "why", err)
		layers.Anew()
	}
}
