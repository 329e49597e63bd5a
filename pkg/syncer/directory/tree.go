package directory

import (
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
	root    string
	watch   func(dir string) error // called before a directory is read, so that no later change is missed
	unwatch func(dir string) error // called for directories that the tree has no more; may be nil
	seen    map[string]fingerprint // by path
	found   *listing               // by the last walk, and glances since; nil: there was none
	full    os.FileInfo            // the root when it held files last; nil: it never did
	other   []string               // regular files that the last walk left out because of their names
	most    int                    // directories that a walk reads; 0: mostDirectories
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
