package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/link"
)

// pins are the directories of the BPF file system that links are pinned in.
type pins struct {
	dir   string   // for all links
	older []string // may have links of an agent with another map layout
}

func (p pins) dirs() []string { return append([]string{p.dir}, p.older...) }

// load opens the link of that name in dir or one of the older directories; nil: there is none.
func (p pins) load(name string) (link.Link, error) {
	for _, dir := range p.dirs() {
		path := filepath.Join(dir, name)
		opened, err := link.LoadPinnedLink(path, nil)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open link %s: %w", path, err)
		}
		return opened, nil
	}
	return nil, nil
}

// ensure pins the link in dir unless it is pinned there, and reports whether it had to. A pin in an older
// directory is moved.
func (p pins) ensure(opened link.Link, name string) (bool, error) {
	path := filepath.Join(p.dir, name)
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	for _, dir := range p.older {
		if err := os.Rename(filepath.Join(dir, name), path); err == nil {
			return false, nil
		}
	}
	// The link may believe that it is pinned still, where no file is any more.
	if err := opened.Unpin(); err != nil {
		return false, fmt.Errorf("pin link %s: %w", path, err)
	}
	if err := opened.Pin(path); err != nil {
		return false, fmt.Errorf("pin link %s: %w", path, err)
	}
	return true, nil
}

// drop takes a link off where it is attached: its pins and its handle are gone.
func (p pins) drop(opened link.Link, name string) error {
	errs := []error{p.unpin(name)}
	if opened != nil {
		errs = append(errs, opened.Close())
	}
	return errors.Join(errs...)
}

func (p pins) unpin(name string) error {
	var errs []error
	for _, dir := range p.dirs() {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unpin link: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isDead reports whether the link of an interface is pinned, and attached nowhere: the kernel detaches a link when its interface goes.
func (p pins) isDead(key tcxKey) (pinned, dead bool, err error) {
	opened, err := p.load(key.pin())
	if err != nil || opened == nil {
		return false, false, err
	}
	_, alive, err := state(opened, key)
	return true, err == nil && !alive, errors.Join(err, opened.Close())
}

// pinNames are the names of all pins in dir, or nothing if there is no such directory.
func pinNames(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := make([]string, len(list))
	for i, entry := range list {
		names[i] = entry.Name()
	}
	return names, nil
}
