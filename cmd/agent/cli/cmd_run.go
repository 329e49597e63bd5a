//go:build linux

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/kube"
	"github.com/margay-project/margay/pkg/node"
)

func runCommand() *cobra.Command {
	var settings settingFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent: watch the datastore and enforce its policy on this node",
		Long: `Reads policy from the datastore and enforces it on this node until it is stopped. Policy stays enforced after that;
margay cleanup removes it. Enforcing needs root. Settings come from flags, MARGAY_* variables, a file and
FelixConfigurations: margay config shows each with its source.`,
		Example: `  margay run --dir /etc/margay/manifests
  margay run --datastore kubernetes --kubeconfig FILE
  margay run --dataplane record --dir manifests   # enforces nothing, logs what it would enforce`,
		Args: noArguments("dir"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			layers, warnings, err := settings.layers()
			if err != nil {
				return err
			}
			return run(cmd.Context(), layers, settings.fileRequired(), warnings)
		},
	}
	settings.register(cmd.Flags())
	return cmd
}

// run runs the agent until ctx ends; from the beginning, but in this process, whenever its configuration takes that.
// Enforced policy stays in force meanwhile: links and maps are pinned. fileRequired: an agent does not start without the file.
func run(ctx context.Context, layers *config.Layers, fileRequired bool, warnings []string) error {
	level := new(slog.LevelVar)
	if err := level.UnmarshalText([]byte(layers.Config().LogLevel)); err != nil {
		return err
	}
	log := newLogger(os.Stderr, level)
	shareCPUs()
	kube.QuietLibrary(log)
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
	left, ends := 0, false
	stopped := logStop(ctx, log)
	defer func() { stopped(left, layers.Config().Enforces(), ends) }()
	files := followFile(ctx, layers.Config().ConfigFile, fileRequired)
	before := node.FindStartState(layers.Config())
	for {
		p, err := assemble(layers, files, level, log)
		if file := layers.Config().ConfigFile; err != nil && layers.Withdraw(fmt.Errorf("%s: %w", file, err)) {
			log.Error("no agent can start with the configuration file, its last valid version stays in force", "err", layers.FileErr())
			p, err = assemble(layers, files, level, log)
		}
		if err != nil {
			before.Restore(log)
			return err
		}
		layers.Used()
		if !ends && before.EndsWithProcess() {
			ends = true
			log.Warn("no BPF file system was mounted here, and this process has a mount namespace of its own (ip netns exec, a container): policy ends "+
				"with the process, and other processes find no maps. Have the node mount one where this process sees it, or enter the network "+
				"namespace alone (nsenter --net=FILE)", "bpffs", layers.Config().BPFFS)
		}
		err = p.run(ctx)
		if !errors.Is(err, agent.ErrRestart) {
			left = p.left
			if err != nil {
				before.Restore(log)
			}
			return err
		}
		log.Info("restarting within the process", "why", err)
		layers.SourceRestarted()
	}
}

// logStop logs when ctx ends that the agent stops, and why. The function it returns logs that it has stopped, with how many
// endpoints stay enforced if its dataplane enforces and what is pinned does not end with the process; it does nothing if ctx has not ended.
func logStop(ctx context.Context, log *slog.Logger) (stopped func(endpoints int, enforces, ends bool)) {
	began := make(chan time.Time, 1)
	notYet := context.AfterFunc(ctx, func() {
		log.Info("stopping", "why", context.Cause(ctx).Error())
		began <- time.Now()
	})
	return func(endpoints int, enforces, ends bool) {
		switch {
		case notYet():
			return
		case !enforces:
			log.Info("stopped; nothing was enforced", "took", time.Since(<-began))
			return
		case ends:
			log.Warn("stopped; nothing stays enforced: the BPF file system was mounted in a mount namespace that ends with this process",
				"endpoints", endpoints, "took", time.Since(<-began))
			return
		}
		log.Info("stopped; enforced policy stays in force without following changes, until an agent starts or margay cleanup removes it",
			"endpoints", endpoints, "took", time.Since(<-began))
	}
}
