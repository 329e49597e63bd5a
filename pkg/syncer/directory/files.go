package directory

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Manifests are what files of manifests hold, read once.
type Manifests struct {
	Updates  []model.Update
	Problems []validate.Problem         // in the order of the files' names, by line
	Places   map[model.Key]validate.Ref // where the objects are written
	Ignored  []string                   // regular files of directories whose names have none of the Extensions
}

// ReadFiles reads files, and directories as a Source does, whatever the files' names are. "-" is input. If several
// files name an object, the first by name counts. The error is of a file that cannot be read.
func ReadFiles(pods validate.Pods, input io.Reader, names ...string) (*Manifests, error) {
	c, table := newCatalog(), kinds.Table(pods)
	var all Manifests
	if at := slices.Index(names, "-"); at >= 0 && slices.Contains(names[at+1:], "-") {
		return nil, errors.New("standard input (-) is named twice and can be read once: write one of its parts to a file")
	}
	for _, name := range names {
		ignored, err := readNamed(c, table, input, name)
		if err != nil {
			return nil, err
		}
		all.Ignored = append(all.Ignored, ignored...)
	}
	all.Updates = append(c.flush(), model.InSync{})
	all.Problems, all.Places = c.problems(), c.places()
	return &all, nil
}

// standardInput is what messages call it.
const standardInput = "standard input"

// readNamed reads one file, directory or standard input. ignored are the regular files of a directory with other names than manifests have.
func readNamed(c *catalog, table validate.Table, input io.Reader, name string) (ignored []string, err error) {
	if name == "-" {
		text, err := io.ReadAll(io.LimitReader(input, validate.MaxFileSize+1))
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		if isBlank(text) {
			return nil, fmt.Errorf("standard input is empty: no objects to look at")
		}
		c.put(standardInput, table.Parse(standardInput, text), true)
		return nil, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, unreadable(name, err)
	}
	if !info.IsDir() {
		if err := readInto(c, table, name); err != nil {
			return nil, unreadable(name, err)
		}
		return nil, nil
	}
	t := tree{root: filepath.Clean(name), watch: func(string) error { return nil }, seen: map[string]fingerprint{}}
	found := t.walk()
	for path, err := range found.unreadable {
		c.fail(path, fileProblem(path, validate.Rejected, err))
	}
	for path := range found.files {
		if err := readInto(c, table, path); err != nil {
			c.fail(path, fileProblem(path, validate.Rejected, err))
		}
	}
	return t.other, nil
}

// unreadable is the error of a name that was given and cannot be read.
func unreadable(name string, err error) error {
	return fmt.Errorf("read manifests from %s: %w; %s", name, reasonOf(err), remedyOf(err, "want a file or directory that exists, or - for standard input"))
}

func readInto(c *catalog, table validate.Table, path string) error {
	text, err := readFile(path)
	if err != nil {
		return err
	}
	if isBlank(text) {
		c.empty(path, fileProblem(path, validate.Rejected, errEmpty))
		return nil
	}
	c.put(path, table.Parse(path, text), true)
	return nil
}
