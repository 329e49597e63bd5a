package directory

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// scan walks the whole tree, reads the files that changed, and returns the changes of objects. It reads the files in
// touched, or with lost all files, even if they look unchanged. Files that are being written (unquiet) are left alone.
func (d *Source) scan(touched, unquiet map[string]bool, lost bool) syncer.Batch {
	found := d.tree.walk()
	paths := map[string]bool{}
	for path := range d.catalog.files {
		paths[path] = false
	}
	for _, path := range d.aside.paths() {
		paths[path] = false
	}
	for path := range found.files {
		paths[path] = lost || touched[path]
	}
	for path := range found.unreadable {
		if isManifest(path) && found.dirs[path] == "" {
			paths[path] = true
		}
	}
	return d.follow(found, paths, unquiet)
}

// glance is a scan of the files that events have named (touched), and of those with losses to be believed. A change so costs the same beside
// any number of other files. It becomes a scan if the events are about more than files.
func (d *Source) glance(touched, unquiet map[string]bool) syncer.Batch {
	paths := map[string]bool{}
	maps.Copy(paths, touched)
	for _, path := range d.losses.allDue(time.Now(), d.aside.past) {
		paths[path] = true
	}
	for path := range paths {
		if !d.tree.glance(path) {
			return d.scan(touched, unquiet, false)
		}
	}
	return d.follow(d.tree.found, paths, unquiet)
}

// follow brings the catalog up to date with files, and returns the changes of objects. paths say of each whether it is read even if it looks
// unchanged.
func (d *Source) follow(found *listing, paths, unquiet map[string]bool) syncer.Batch {
	now := time.Now()
	if d.tree.replaced(found) && len(d.catalog.files) > 0 {
		found.unreadable[d.tree.root] = errReplaced
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		info, ok := found.files[path]
		switch {
		case found.unreadable[path] != nil && found.dirs[path] == "":
			d.fail(path, found.unreadable[path])
		case unquiet[path]:
		case !ok:
			d.missing(path, under(path, found.unreadable), now)
		default:
			d.read(found, path, info, paths[path], now)
		}
	}
	updates := d.catalog.flush()
	problems := d.problemsOf(found)
	changed := syncer.Batch{Updates: updates, Problems: syncer.Difference(d.problems, problems)}
	d.problems = problems
	d.heard.write(problems, now)
	d.note(len(found.unreadable))
	changed.Kinds = []syncer.KindStatus{d.status}
	return changed
}

// read reads a file if it has changed, or may have.
func (d *Source) read(found *listing, path string, info os.FileInfo, force bool, now time.Time) {
	due := d.losses.due(path, now, d.aside.past)
	text, changed, err := d.tree.read(path, info, force || due)
	switch {
	case err != nil:
		found.unreadable[path] = err
		d.fail(path, err)
	case changed || due:
		d.put(path, text, !changed, now)
	}
}

// fail notes that a file is there and cannot be read.
func (d *Source) fail(path string, err error) {
	delete(d.tree.seen, path)
	d.losses.end(path)
	d.aside.drop(path)
	d.catalog.fail(path, fileProblem(path, validate.Rejected, err))
}

// missing notes that a file is not there, if it was ever read. unknown: nor can it be found out whether it is.
func (d *Source) missing(path string, unknown bool, now time.Time) {
	if d.catalog.files[path] != nil && !unknown {
		d.gone(path, now)
	}
	if slices.Contains(d.aside.paths(), path) {
		delete(d.tree.seen, path)
		d.aside.drop(path)
	}
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

// note notes how it stands with the directory after one more look at it.
func (d *Source) note(unreadable int) {
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
