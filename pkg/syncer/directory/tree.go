package directory

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tree is a directory and what its manifest files looked like when they were read last.
//
// Names that start with a dot are not looked at: they are editors' files, and the inner directories of a volume that
// Kubernetes mounts (..data), whose files appear a second time as symbolic links. Links are followed; a directory that
// can be reached by several paths is read once, by the first.
type tree struct {
	root  string
	watch func(dir string) error // called before a directory is read, so that no later change is missed
	seen  map[string]fingerprint // by path
	full  os.FileInfo            // the root when it held files last; nil: it never did
	other []string               // regular files that the last walk left out because of their names
	most  int                    // directories that a walk reads; 0: mostDirectories
}

// mostDirectories bounds a walk, which is repeated every few seconds: a link may lead to very many directories, as one to / does.
const mostDirectories = 10_000

// fingerprint tells whether a file must be read again.
type fingerprint struct {
	info   os.FileInfo
	readAt time.Time
	sum    [sha256.Size]byte
}

// coarseTime is more than the granularity of any file system's times: a file changed this shortly before it was read
// may have been changed once more without a trace.
const coarseTime = 2 * time.Second

// changed reports whether a file that looks so now must be read again. One that had been changed shortly before it was read is
// read once more, when that is long enough ago: in between, events name it if it changes, and a large one is not read
// whenever another file changes.
func (f fingerprint) changed(now os.FileInfo, at time.Time) bool {
	if !os.SameFile(f.info, now) || f.info.Size() != now.Size() || !f.info.ModTime().Equal(now.ModTime()) {
		return true
	}
	age := at.Sub(now.ModTime())
	return f.readAt.Sub(now.ModTime()) < coarseTime && (age >= coarseTime || age < 0) // less than 0: the time is no measure
}

// listing is what a walk found.
type listing struct {
	files      map[string]os.FileInfo // manifest files; links resolved
	dirs       map[string]bool        // directories
	unreadable map[string]error       // manifest files and directories that are there and cannot be looked at
	unwatched  map[string]error       // directories whose changes will not be announced
	visited    map[string]bool        // directories by their path without links
	over       string                 // the first directory that was not read because there are too many; empty: none
	other      []string               // regular files with other names
}

// walk lists the tree. Files that disappear meanwhile are left out.
func (t *tree) walk() *listing {
	l := &listing{
		files:      map[string]os.FileInfo{},
		dirs:       map[string]bool{},
		unreadable: map[string]error{},
		unwatched:  map[string]error{},
		visited:    map[string]bool{},
	}
	if err := t.walkDir(l, t.root); err != nil {
		l.unreadable[t.root] = err
	}
	if l.over != "" {
		l.unreadable[t.root] = fmt.Errorf("more than %d directories: %s and others are not read; does a link lead out of the directory, to too many?", len(l.visited), l.over)
	}
	t.other = l.other
	return l
}

// replaced reports whether the root holds no manifests now and is another directory than the one that did. An unmounted
// volume leaves such a directory. found is of the latest walk.
func (t *tree) replaced(found *listing) bool {
	info, err := os.Stat(t.root)
	if err != nil {
		return false // unreadable, and said to be
	}
	if len(found.files) > 0 {
		t.full = info
	}
	return len(found.files) == 0 && t.full != nil && !os.SameFile(t.full, info)
}

// walkDir lists one directory and those below it. It returns an error if this one cannot be read to its end.
func (t *tree) walkDir(l *listing, dir string) error {
	target, err := filepath.EvalSymlinks(dir)
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
	l.visited[target], l.dirs[dir] = true, true
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

// Extensions are the ends of the names of manifest files.
var Extensions = []string{".yaml", ".yml", ".json"}

// isManifest reports whether the file's name says that it holds objects.
func isManifest(path string) bool {
	return slices.Contains(Extensions, filepath.Ext(path)) && !strings.HasPrefix(filepath.Base(path), ".")
}

// read returns the text of a file if it is not the one seen last. force reads the file even if it looks unchanged. It
// returns one byte more than a manifest may have at most, for the parser to see that it is too long.
func (t *tree) read(path string, info os.FileInfo, force bool) (text []byte, changed bool, err error) {
	now := time.Now()
	last, known := t.seen[path]
	if known && !force && !last.changed(info, now) {
		return nil, false, nil
	}
	text, err = readFile(path)
	if err != nil {
		delete(t.seen, path)
		return nil, false, err
	}
	sum := sha256.Sum256(text)
	t.seen[path] = fingerprint{info, now, sum}
	return text, !known || sum != last.sum, nil
}

// under reports whether path is one of the directories or below one.
func under(path string, dirs map[string]error) bool {
	for {
		if _, ok := dirs[path]; ok {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}

var errNotDirectory = errors.New("not a directory")

// checkRoot returns an error if the directory cannot be read at all.
func checkRoot(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errNotDirectory
	}
	if err == nil {
		_, err = os.ReadDir(dir)
	}
	if err != nil {
		return fmt.Errorf("read the directory of manifests %s: %w; %s", dir, reasonOf(err), remedyOf(err, "--dir (the setting dir) must name a directory that exists"))
	}
	return nil
}

// reasonOf is err without the system call and the path, which messages name in their own words.
func reasonOf(err error) error {
	if e := (*fs.PathError)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// remedyOf says what to do about err. otherwise is for what lack of rights does not explain.
func remedyOf(err error, otherwise string) string {
	if errors.Is(err, fs.ErrPermission) {
		return "give this user the right to read it, or read it as root"
	}
	return otherwise
}
