package directory

import (
	"os"
	"path/filepath"
	"strings"
)

// mostLinks is how many links Linux follows on the way to one file.
const mostLinks = 40

// ways finds where links lead through. A change of any of these paths may make a link lead to something else, so that only a walk
// finds what the tree holds then. All paths are absolute and without links.
type ways struct {
	passed map[string]bool   // each path that a link leads through, the link's own and the end among them
	known  map[string]string // the targets of paths that have been looked at; empty: no link, or not there
}

func newWays() ways { return ways{passed: map[string]bool{}, known: map[string]string{}} }

// follow notes what the path leads through, from a directory on. The rest is noted, too, if one of them is not there.
func (w ways) follow(dir, path string) {
	for links := 0; path != "" && links <= mostLinks; {
		var name string
		name, path, _ = strings.Cut(path, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			dir = filepath.Dir(dir)
			continue
		}
		next := filepath.Join(dir, name)
		w.passed[next] = true
		target := w.target(next)
		switch {
		case target == "":
			dir = next
			continue
		case filepath.IsAbs(target):
			dir = "/"
		}
		path = target + "/" + path
		links++
	}
}

// target is where a path leads if it is a link.
func (w ways) target(path string) string {
	target, known := w.known[path]
	if !known {
		target, _ = os.Readlink(path) // an error: it is no link, or not there
		w.known[path] = target
	}
	return target
}

// withoutLinks is the absolute path of a directory without links.
func withoutLinks(dir string) (string, error) {
	target, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	return filepath.Abs(target)
}
