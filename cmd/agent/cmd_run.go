//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/syncer"
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

// run is the composition root: every part of the agent, in order.
func run(ctx context.Context, layers *config.Layers, warnings []string) error {
	c := layers.Config()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return err
	}
	log := newLogger(level)
	for _, w := range warnings {
		log.Warn("configuration", "warning", w)
	}
	source, err := openSource(c, log)
	if err != nil {
		return err
	}
	host, err := dataplane.OpenLinux(c.InterfacePrefix, log)
	if err != nil {
		return err
	}
	bpf, err := dataplane.OpenBPF(dataplaneConfig(c), host, log)
	if err != nil {
		return errors.Join(refusal(err, c.BPFFS), host.Close())
	}
	loop := agent.New(agent.Options{Source: source, Graph: calc.New(c.Node), Dataplane: bpf, Log: log, ResyncEvery: c.ResyncEvery})
	api := &agent.API{Loop: loop, BPF: bpf, Source: source, Node: c.Node, Version: version(), Started: time.Now()}
	log.Info("margay", "version", version(), "node", c.Node, "datastore", c.Datastore, "dir", c.Dir, "dataplane", "bpf")

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return loop.Run(ctx) })
	g.Go(func() error { return api.Serve(ctx, socketOf(c)) })
	err = g.Wait()
	// What is enforced stays enforced: links and maps are pinned.
	return errors.Join(err, bpf.Close())
}

// socketOf is where the agent of c answers its tools.
func socketOf(c config.Config) string {
	flags := instanceFlags{instance: c.Instance, socket: c.Socket}
	return flags.socketPath()
}

func openSource(c config.Config, log *slog.Logger) (*syncer.Directory, error) {
	if c.Datastore != "directory" {
		return nil, fmt.Errorf("datastore %s: want directory", c.Datastore)
	}
	if c.Dir == "" {
		return nil, errors.New("--datastore directory needs --dir, the directory of manifests")
	}
	d := syncer.NewDirectory(c.Dir, log)
	d.InterfacePrefix = c.InterfacePrefix
	return d, nil
}
