// Package directory brings a directory of manifest files: a source that watches it, and a reader of files for tools.
package directory

import (
	"context"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// Source is a syncer.Source whose datastore is a directory of manifest files (*.yaml, *.yml, *.json), read recursively
// and watched. Large files are parsed beside the others, which do not wait for them.
//
// An object is deleted when no file contains it any more, and the file that did has stayed unchanged for believedAfter.
// The last valid version stays, and a problem is reported, if an object becomes invalid, or its file cannot be read any
// more or becomes empty. A writer should replace files by renaming: if a file is read half written, its objects are
// used as they stand there.
type Source struct {
	kinds    validate.Table
	tree     tree
	losses   losses
	aside    aside
	catalog  *catalog
	log      *slog.Logger
	heard    problemLog
	problems map[string][]validate.Problem // by subject, as of the last look
	status   syncer.KindStatus

	// quiet is how long the events of a file must pause before it is read, patience how long they may keep it from that.
	quiet, patience time.Duration
	// large is how many bytes a file has at least that is parsed aside.
	large int
	// backstop is how often the files are looked at without an event.
	backstop time.Duration
	// newWatcher begins to watch; after an error the backstop alone notices changes.
	newWatcher func() (*fsnotify.Watcher, error)
}

// New returns a source for the directory. pods say how pods are read. It does no I/O.
func New(dir string, pods validate.Pods, log *slog.Logger) *Source {
	return &Source{
		kinds:    kinds.Table(pods),
		tree:     tree{root: filepath.Clean(dir), seen: map[string]fingerprint{}},
		catalog:  newCatalog(),
		log:      log,
		heard:    newProblemLog(log),
		status:   syncer.KindStatus{Kind: directoryKind, State: syncer.KindListing, Required: true},
		quiet:    50 * time.Millisecond,
		patience: time.Second,
		large:    largeFile,
		backstop: 10 * time.Second,

		newWatcher: fsnotify.NewWatcher,
	}
}

// Places says where the objects in force are written. To be called after Run has returned. The map is the caller's.
func (d *Source) Places() map[model.Key]validate.Ref {
	return d.catalog.places()
}

// Ignored are the regular files whose names have none of the Extensions. To be called after Run has returned. The slice is the caller's.
func (d *Source) Ignored() []string {
	return d.tree.other
}

// directoryKind is the one kind of a directory, whatever its files hold.
const directoryKind = "manifests"

// Run implements syncer.Source. It fails if the directory cannot be read at the start.
func (d *Source) Run(ctx context.Context, sink func(syncer.Batch)) error {
	if err := checkRoot(d.tree.root); err != nil {
		return err
	}
	events, failures, stop := d.openWatch()
	defer stop()

	first := d.scan(nil, nil, false)
	first.Updates = append(first.Updates, model.InSync{})
	sink(first)
	d.aside.parse = d.parse // from here on
	backstop := time.NewTicker(d.backstop)
	defer backstop.Stop()
	due := time.NewTimer(0)
	defer due.Stop()
	b := burst{quiet: d.quiet, patience: d.patience}
	for {
		due.Stop()
		if wait, ok := d.next(&b, time.Now()); ok {
			due.Reset(wait)
		}
		whole := false
		select {
		case <-ctx.Done():
			return nil
		case <-backstop.C:
			whole = true
		case <-due.C:
		case docs := <-d.aside.done:
			d.parsed(docs)
		case e := <-events:
			if path := filepath.Clean(e.Name); d.tree.concerns(path, e.Op == fsnotify.Write) {
				b.add(path, time.Now())
			}
			continue
		case err := <-failures:
			b.fail(err, time.Now())
			continue
		}
		started := time.Now()
		touched, unquiet, err := b.drain(started)
		if err != nil {
			d.log.Warn("events of the directory were lost, reading all of it", "directory", d.tree.root, "err", err)
		}
		var changed syncer.Batch
		if whole || err != nil {
			changed = d.scan(touched, unquiet, err != nil)
		} else {
			changed = d.glance(touched, unquiet)
		}
		now := time.Now()
		b.looked(now.Sub(started), now)
		sink(changed)
	}
}

// next is how long it is until there is something to look at; not ok: there will not be.
func (d *Source) next(b *burst, now time.Time) (wait time.Duration, ok bool) {
	wait, ok = b.next(now)
	if lost, some := d.losses.next(now, d.aside.past); some && (!ok || lost < wait) {
		return lost, true
	}
	return wait, ok
}

// openWatch starts watching. Without a watch (the kernel limits their number) the backstop alone notices changes; scan
// then reports every directory as not watched.
func (d *Source) openWatch() (<-chan fsnotify.Event, <-chan error, func()) {
	w, err := d.newWatcher()
	if err != nil {
		d.tree.watch = func(string) error { return err }
		return nil, nil, func() {}
	}
	d.tree.watch, d.tree.unwatch = w.Add, w.Remove
	return w.Events, w.Errors, func() {
		if err := w.Close(); err != nil {
			d.log.Warn("closing the watch of the directory failed", "directory", d.tree.root, "err", err)
		}
	}
}
