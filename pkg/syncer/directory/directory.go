// Package directory brings a directory of manifest files: a source that watches it, and a reader of files for tools.
package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
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
		select {
		case <-ctx.Done():
			return nil
		case <-backstop.C:
		case <-due.C:
		case docs := <-d.aside.done:
			d.parsed(docs)
		case e := <-events:
			b.add(e, time.Now())
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
		changed := d.scan(touched, unquiet, err != nil)
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
	d.tree.watch = w.Add
	return w.Events, w.Errors, func() {
		if err := w.Close(); err != nil {
			d.log.Warn("closing the watch of the directory failed", "directory", d.tree.root, "err", err)
		}
	}
}

// scan walks the whole tree, reads the files that changed, and returns the changes of objects. It reads the files in
// touched, or with lost all files, even if they look unchanged. Files that are being written (unquiet) are left alone.
func (d *Source) scan(touched, unquiet map[string]bool, lost bool) syncer.Batch {
	found, now := d.tree.walk(), time.Now()
	if d.tree.replaced(found) && len(d.catalog.files) > 0 {
		found.unreadable[d.tree.root] = errReplaced
	}
	for _, path := range slices.Sorted(maps.Keys(found.files)) {
		if unquiet[path] {
			continue
		}
		due := d.losses.due(path, now, d.aside.past)
		text, changed, err := d.tree.read(path, found.files[path], lost || touched[path] || due)
		switch {
		case err != nil:
			found.unreadable[path] = err
		case changed || due:
			d.put(path, text, !changed, now)
		}
	}
	for path, err := range found.unreadable {
		if isManifest(path) && !found.dirs[path] {
			delete(d.tree.seen, path)
			d.losses.end(path)
			d.aside.drop(path)
			d.catalog.fail(path, fileProblem(path, validate.Rejected, err))
		}
	}
	for path := range d.catalog.files {
		if _, ok := found.files[path]; !ok && !unquiet[path] && !under(path, found.unreadable) {
			d.gone(path, now)
		}
	}
	for _, path := range d.aside.paths() {
		if _, ok := found.files[path]; !ok && !unquiet[path] {
			delete(d.tree.seen, path)
			d.aside.drop(path)
		}
	}
	updates := d.catalog.flush()
	problems := d.problemsOf(found)
	changed := syncer.Batch{Updates: updates, Problems: syncer.Difference(d.problems, problems)}
	d.problems = problems
	d.heard.write(problems, now)
	d.follow(len(found.unreadable))
	changed.Kinds = []syncer.KindStatus{d.status}
	return changed
}

// put gives the catalog the objects of a file, at once or, if the file is large, once it is parsed. Objects that the file
// no longer has are kept for now, unless the loss is believed.
func (d *Source) put(path string, text []byte, believed bool, now time.Time) {
	d.losses.end(path)
	if d.aside.parse != nil && len(text) >= d.large {
		d.aside.add(path, text, believed)
		return
	}
	d.aside.drop(path)
	if isBlank(text) {
		d.catalog.empty(path, fileProblem(path, validate.Rejected, errEmpty))
		return
	}
	d.enter(path, d.parse(path, text), believed, now)
}

func (d *Source) parse(path string, text []byte) []validate.Document {
	return d.kinds.Parse(path, text)
}

func (d *Source) enter(path string, docs []validate.Document, believed bool, now time.Time) {
	if d.catalog.put(path, docs, believed) {
		d.losses.begin(path, false, now, d.aside.turns)
	}
}

// parsed has the catalog know what a large file says.
func (d *Source) parsed(docs []validate.Document) {
	if l := d.aside.end(); l != nil {
		d.enter(l.path, docs, l.believed, time.Now())
	}
}

var errEmpty = errors.New("the file is empty; remove it, or put a comment in it, to delete its objects")

var errReplaced = errors.New("the directory was replaced by one without manifests: was a volume unmounted?")

// gone deletes what a file gave that is not there any more, once that has lasted.
func (d *Source) gone(path string, now time.Time) {
	switch {
	case !d.losses.isGone(path):
		delete(d.tree.seen, path) // should it come back, it is read
		d.losses.begin(path, true, now, d.aside.turns)
		d.catalog.keep(path)
	case d.losses.due(path, now, d.aside.past):
		d.losses.end(path)
		d.catalog.remove(path)
	}
}

// follow notes how it stands with the directory after one more look at it.
func (d *Source) follow(unreadable int) {
	now := syncer.KindStatus{Kind: directoryKind, State: syncer.KindSynced, Required: true, Listed: true, Since: time.Now(),
		Objects: d.catalog.objects.LenInForce(), Lists: 1}
	if unreadable > 0 {
		now.State, now.Failures = syncer.KindFailing, 1
		now.Error = fmt.Sprintf("%d files or directories cannot be read; their last objects stay in force", unreadable)
	}
	now.Lists, now.Failures = now.Lists+d.status.Lists, now.Failures+d.status.Failures
	if d.status.State == now.State {
		now.Since = d.status.Since
	}
	d.status = now
}
