//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/syncer"
)

// runOptions is everything `margay run` can be told.
type runOptions struct {
	instanceFlags
	dataplaneFlags
	datastore string
	dir       string
	node      string
	resync    time.Duration
}

func runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent: watch the datastore and enforce its policy on this node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), &o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.datastore, "datastore", "directory", "directory: where objects come from")
	fs.StringVar(&o.dir, "dir", "", "directory of manifests")
	fs.StringVar(&o.node, "node", "", "name of this node (default: the host name)")
	fs.DurationVar(&o.resync, "resync-every", 0, "how often what is in the kernel is compared with what should be (default 90s)")
	fs.Lookup("resync-every").Hidden = true // for tests
	o.instanceFlags.register(fs)
	o.dataplaneFlags.register(fs)
	return cmd
}

// run is the composition root: every part of the agent, in order.
func run(ctx context.Context, o *runOptions) error {
	config, level, err := o.parse()
	if err != nil {
		return err
	}
	log := newLogger(level)
	if o.node == "" {
		if o.node, err = os.Hostname(); err != nil {
			return fmt.Errorf("name of this node: %w; give --node", err)
		}
	}
	source, err := openSource(o, config.Prefix, log)
	if err != nil {
		return err
	}
	config.BPFFS, config.Instance = o.bpffs, o.instance
	host, err := dataplane.OpenLinux(config.Prefix, log)
	if err != nil {
		return err
	}
	bpf, err := dataplane.OpenBPF(config, host, log)
	if err != nil {
		return errors.Join(refusal(err, o.bpffs), host.Close())
	}
	loop := agent.New(agent.Options{Source: source, Graph: calc.New(o.node), Dataplane: bpf, Log: log, ResyncEvery: o.resync})
	api := &agent.API{Loop: loop, BPF: bpf, Source: source, Node: o.node, Version: version(), Started: time.Now()}
	log.Info("margay", "version", version(), "node", o.node, "datastore", o.datastore, "dir", o.dir, "dataplane", "bpf")

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return loop.Run(ctx) })
	g.Go(func() error { return api.Serve(ctx, o.socketPath()) })
	err = g.Wait()
	// What is enforced stays enforced: links and maps are pinned.
	return errors.Join(err, bpf.Close())
}

func openSource(o *runOptions, prefix string, log *slog.Logger) (*syncer.Directory, error) {
	if o.datastore != "directory" {
		return nil, fmt.Errorf("--datastore %q: want directory", o.datastore)
	}
	if o.dir == "" {
		return nil, errors.New("--datastore directory needs --dir, the directory of manifests")
	}
	d := syncer.NewDirectory(o.dir, log)
	d.InterfacePrefix = prefix
	return d, nil
}
