package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"

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

// parseFile reads one manifest file; of what is none, or cannot be read, nothing.
func parseFile(path string) []validate.Document {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
	default:
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return validate.Parse(path, text)
}
