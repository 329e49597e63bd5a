package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/syncer/directory"
	"github.com/margay-project/margay/pkg/validate"
)

// manifests are the objects of a directory, with their problems.
type manifests struct {
	updates  []model.Update
	problems []validate.Problem
	places   map[model.Key]validate.Ref // where the objects are written
}

// directoryEndpoints are the pods of a directory of manifests; if it cannot be read there are none.
func directoryEndpoints(ctx context.Context, dir string) []inspect.EndpointRow {
	m, err := loadDirectory(ctx, dir)
	if err != nil {
		return nil
	}
	var rows []inspect.EndpointRow
	for _, u := range m.updates {
		if pod, ok := u.(model.EndpointUpdate); ok && pod.Endpoint != nil {
			rows = append(rows, inspect.EndpointRow{Namespace: pod.ID.Namespace, Name: pod.ID.Name})
		}
	}
	return rows
}

// loadFiles reads files, directories, and for "-" standard input.
func loadFiles(input io.Reader, names []string) (*manifests, error) {
	m, err := directory.ReadFiles(validate.Pods{}, input, names...)
	if err != nil {
		return nil, err
	}
	return &manifests{updates: m.Updates, problems: m.Problems, places: m.Places}, nil
}

// loadDirectory reads a directory of manifests once, by the reader of `margay run`.
func loadDirectory(ctx context.Context, dir string) (*manifests, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	source := directory.New(dir, validate.Pods{}, slog.New(slog.DiscardHandler))
	var m manifests
	reports := syncer.NewReports()
	err := source.Run(ctx, func(first syncer.Batch) {
		m.updates = append(m.updates, first.Updates...)
		reports.Note(first)
		stop()
	})
	if err != nil {
		return nil, err
	}
	m.problems, m.places = reports.Problems(), source.Places()
	return &m, nil
}
