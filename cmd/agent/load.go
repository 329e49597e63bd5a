package main

import (
	"context"
	"log/slog"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// loadDirectory reads a directory of manifests once, as `margay run` reads it.
func loadDirectory(ctx context.Context, dir string) ([]model.Update, []validate.Problem, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	source := syncer.NewDirectory(dir, slog.New(slog.DiscardHandler))
	var updates []model.Update
	err := source.Run(ctx, func(first []model.Update) {
		updates = append(updates, first...)
		stop()
	})
	return updates, source.Problems(), err
}
