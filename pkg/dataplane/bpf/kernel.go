package bpf

import (
	"log/slog"
	"maps"
	"path/filepath"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// kernel is what the dataplane writes to. It stays open when the state of it is read again.
type kernel struct {
	log       *slog.Logger
	host      Host
	maps      *bpfmaps.Maps
	gens      *bpfmaps.Generations
	endpoints *bpfmaps.Endpoints
	limited   bool     // the grace period has its end; see limitGrace
	older     []string // directories of other map layouts, whose links are still to be taken over
	other     other
	heirs     *heirs
	early     early
}

// olderLinks are the directories of links that may have to be taken over.
func (k *kernel) olderLinks() []string {
	var dirs []string
	for _, dir := range k.older {
		dirs = append(dirs, filepath.Join(dir, bpfmaps.LinksName))
	}
	return dirs
}

// keep makes the entries of a table's map its desired ones, and returns them.
func keep[K, V comparable](t *bpfmaps.Table[K, V]) (map[K]V, error) {
	if err := t.Adopt(); err != nil {
		return nil, err
	}
	return maps.Collect(t.All()), nil
}
