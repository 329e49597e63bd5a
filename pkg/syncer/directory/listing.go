package directory

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// listing is what was found in a tree.
type listing struct {
	files      map[string]os.FileInfo // manifest files; links resolved
	dirs       map[string]string      // directories, and their paths without links
	unreadable map[string]error       // manifest files and directories that are there and cannot be looked at
	unwatched  map[string]error       // directories whose changes will not be announced
	visited    map[string]bool        // the same, by their paths without links
	ways       ways                   // of symbolic links, and of the root
	over       string                 // the first directory that was not read because there are too many; empty: none
	other      []string               // regular files with other names
}

// walk lists the tree. Files that disappear meanwhile are left out.
func (t *tree) walk() *listing {
	l := t.list()
	if t.unwatchGone(l) {
		l = t.list()
	}
	t.found, t.other = l, l.other
	return l
}

// unwatchGone ends the watches of directories that the tree has no more by the names they had, and reports whether there were any. One may have
// another name now, since one above it was renamed, or a link leads to it. It is to be watched again then: a watch keeps the name that its directory
// had first, and ends without a word when another directory gets that.
func (t *tree) unwatchGone(now *listing) (some bool) {
	if t.found == nil || t.unwatch == nil {
		return false
	}
	for dir := range t.found.dirs {
		if now.dirs[dir] == "" {
			some = true
			_ = t.unwatch(dir) // an error: the watch has ended with the directory
		}
	}
	return some
}

func (t *tree) list() *listing {
	l := &listing{
		files:      map[string]os.FileInfo{},
		dirs:       map[string]string{},
		unreadable: map[string]error{},
		unwatched:  map[string]error{},
		visited:    map[string]bool{},
		ways:       newWays(),
	}
	if root, err := filepath.Abs(t.root); err == nil {
		l.ways.follow("/", root)
	}
	if err := t.walkDir(l, t.root); err != nil {
		l.unreadable[t.root] = err
	}
	if l.over != "" {
		l.unreadable[t.root] = fmt.Errorf("more than %d directories: %s and others are not read; does a link lead out of the directory, to too many?", len(l.visited), l.over)
	}
	l.ways.known = nil // it has grown old
	return l
}

// glance brings the listing up to date with one file that has come, changed or gone. It reports false if that takes a walk: if the path is, or
// was, anything but a file in a directory of the last walk, or a link leads through it.
func (t *tree) glance(path string) bool {
	l := t.found
	if l == nil || l.dirs[path] != "" || l.dirs[filepath.Dir(path)] == "" || under(filepath.Dir(path), l.unreadable) || l.isPassed(path) {
		return false
	}
	info, err := os.Lstat(path)
	if err == nil && (info.IsDir() || info.Mode()&fs.ModeSymlink != 0) || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	delete(l.files, path)
	delete(l.unreadable, path)
	switch {
	case err != nil || !isManifest(path):
	case !info.Mode().IsRegular():
		l.unreadable[path] = errNotRegular
	default:
		l.files[path] = info
	}
	return true
}

// isPassed reports whether a link leads through the path.
func (l *listing) isPassed(path string) bool {
	dir := l.dirs[filepath.Dir(path)]
	return dir != "" && l.ways.passed[filepath.Join(dir, filepath.Base(path))]
}

// concerns reports whether an event may change what a walk finds, or what is read. written: it says only that the file was written.
func (t *tree) concerns(path string, written bool) bool {
	switch l := t.found; {
	case l.dirs[filepath.Dir(path)] == "": // a directory that is called otherwise now, or the root
		return true
	case l.dirs[path] != "" || l.isPassed(path):
		return true
	case strings.HasPrefix(filepath.Base(path), "."):
		return false
	default:
		return !written || isManifest(path)
	}
}

// walkDir lists one directory and those below it. It returns an error if this one cannot be read to its end.
func (t *tree) walkDir(l *listing, dir string) error {
	target, err := withoutLinks(dir)
	if err != nil {
		return err
	}
	if l.visited[target] {
		return nil
	}
	if len(l.visited) >= cmp.Or(t.most, mostDirectories) {
		l.over = cmp.Or(l.over, dir)
		return nil
	}
	l.visited[target], l.dirs[dir] = true, target
	watchErr := t.watch(dir)
	entries, err := os.ReadDir(dir)
	if watchErr != nil && err == nil {
		l.unwatched[dir] = watchErr
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		isLink := e.Type()&fs.ModeSymlink != 0
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if !e.IsDir() && !isLink && !isManifest(path) {
			l.leaveOut(path, e.Type())
			continue
		}
		if isLink {
			l.ways.follow(target, e.Name())
		}
		if err := t.visit(l, path); err != nil {
			if _, gone := os.Lstat(path); gone == nil {
				l.unreadable[path] = ofLink(path, isLink, err)
			}
		}
	}
	return err
}

// ofLink names the target of a link in an error about it.
func ofLink(path string, isLink bool, err error) error {
	if target, unknown := os.Readlink(path); isLink && unknown == nil {
		return fmt.Errorf("link to %s: %w", target, reasonOf(err))
	}
	return err
}

// visit lists a directory, a link or a file with the name of a manifest.
func (t *tree) visit(l *listing, path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return t.walkDir(l, path)
	case !isManifest(path):
		l.leaveOut(path, info.Mode())
		return nil
	case !info.Mode().IsRegular():
		return errNotRegular
	}
	l.files[path] = info
	return nil
}

// leaveOut notes a file whose name is no manifest's.
func (l *listing) leaveOut(path string, mode fs.FileMode) {
	if mode.IsRegular() {
		l.other = append(l.other, path)
	}
}

var errNotRegular = errors.New("not a regular file")
