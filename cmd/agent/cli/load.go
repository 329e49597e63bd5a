package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/syncer/directory"
	"github.com/margay-project/margay/pkg/validate"
)

// manifests are the objects of a directory, with their problems.
type manifests struct {
	updates  []model.Update
	problems []validate.Problem
	places   map[model.Key]validate.Ref // where the objects are written
	ignored  []string                   // regular files of directories whose names are no manifests'
}

// mostIgnored bounds the files that a note names.
const mostIgnored = 5

// ignoredNote names files that were ignored because of their names; empty: there are none.
func (m *manifests) ignoredNote() string {
	if len(m.ignored) == 0 {
		return ""
	}
	named := slices.Sorted(slices.Values(m.ignored))
	text := selector.Printable(strings.Join(named[:min(len(named), mostIgnored)], ", ")) // whoever adds a file chooses its name
	if more := len(named) - mostIgnored; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	last := len(directory.Extensions) - 1
	ends := strings.Join(directory.Extensions[:last], ", ") + " or " + directory.Extensions[last]
	return fmt.Sprintf("not read, since the name does not end in %s: %s", ends, text)
}

// isEmpty reports whether there is nothing that can be checked: no object, and nothing that should be one.
func (m *manifests) isEmpty() bool {
	return len(m.problems) == 0 && !slices.ContainsFunc(m.updates, func(u model.Update) bool { return u != model.InSync{} })
}

// manifestsFlag is a flag --dir of a tool. Without a value the tool does something else, so an empty one is refused: it comes from a
// variable that is not set.
type manifestsFlag struct{ dir *string }

func (f manifestsFlag) String() string {
	if f.dir == nil {
		return ""
	}
	return *f.dir
}

func (manifestsFlag) Type() string { return "string" }

// Set implements pflag.Value.
func (f manifestsFlag) Set(dir string) error {
	if dir == "" {
		return errors.New("want a directory of manifests; is a variable unset?")
	}
	*f.dir = dir
	return nil
}

// directoryEndpoints are the pods of a directory of manifests; if it cannot be read there are none.
func directoryEndpoints(ctx context.Context, dir string) []inspect.EndpointRow {
	m, err := loadDirectory(ctx, dir)
	if err != nil {
		return nil
	}
	var rows []inspect.EndpointRow
	for _, u := range m.updates {
		if pod, ok := u.(model.EndpointUpdate); ok && pod.Endpoint != nil && !pod.Endpoint.HostNetwork {
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
	return &manifests{updates: m.Updates, problems: m.Problems, places: m.Places, ignored: m.Ignored}, nil
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
	m.problems, m.places, m.ignored = reports.Problems(), source.Places(), source.Ignored()
	return &m, nil
}
