package endpointstatus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// temporary is the name of a file while it is written. No endpoint has it, and readers that list the directory see a
// dot file; a rename gives it its own name once it is whole.
const temporary = ".margay.tmp"

// maxBody is more than any file of ours has: a longer one is not, and is written again.
const maxBody = 64 << 10

// directory is the place of the files. Its methods name the file in their errors.
type directory string

// make makes the directory if there is none.
func (d directory) make() error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return fmt.Errorf("make the directory of endpoint status files: %w", err)
	}
	return nil
}

// read returns the files in the directory that are about pods, by name.
func (d directory) read() (map[string]string, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("list endpoint status files: %w", err)
	}
	there := make(map[string]string, len(entries))
	for _, e := range entries {
		if !isFileName(e.Name()) {
			continue
		}
		there[e.Name()] = d.text(e)
	}
	return there, nil
}

// text returns a file's content; empty, which no wanted file is, if that is no use.
func (d directory) text(e fs.DirEntry) string {
	info, err := e.Info()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxBody {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(string(d), e.Name()))
	if err != nil {
		return ""
	}
	return string(text)
}

// write puts a file in place at once: a reader sees the old one, or the new one, or none, but never a part.
func (d directory) write(name, text string) error {
	part := filepath.Join(string(d), temporary)
	if err := os.WriteFile(part, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write endpoint status file %q: %w", name, err)
	}
	if err := os.Rename(part, filepath.Join(string(d), name)); err != nil {
		return errors.Join(fmt.Errorf("put endpoint status file %q in place: %w", name, err), os.Remove(part))
	}
	return nil
}

// remove removes a file; one that is gone already is no error.
func (d directory) remove(name string) error {
	if err := os.Remove(filepath.Join(string(d), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove endpoint status file %q: %w", name, err)
	}
	return nil
}
