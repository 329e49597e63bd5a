package attach

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// Programs are what Links attaches. Without Judge there are no netfilter hooks.
type Programs struct {
	FromPod, ToPod *ebpf.Program // TCX
	Judge          *ebpf.Program // netfilter; may be nil
}

// Links attaches programs by links pinned in a directory of the BPF file system, so that they stay when the agent ends.
type Links struct {
	dir      string
	older    []string
	programs Programs
	ids      map[*ebpf.Program]ebpf.ProgramID // of programs
	tcx      map[tcxKey]link.Link
	hooks    map[string]link.Link // by pin name
	ours     map[tcxKey]bool      // ensured before by this process
}

var _ Attacher = (*Links)(nil)

// NewLinks returns an Attacher that pins in dir, which it creates. Links pinned in older directories (of another map
// layout) are moved to dir when they are ensured. The programs stay the caller's and must stay open.
func NewLinks(dir string, older []string, programs Programs) (*Links, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for links: %w", err)
	}
	l := &Links{
		dir: dir, older: older, tcx: map[tcxKey]link.Link{}, hooks: map[string]link.Link{}, ours: map[tcxKey]bool{},
	}
	if err := l.SetPrograms(programs); err != nil {
		return nil, err
	}
	return l, nil
}

// SetPrograms replaces the programs; the next Ensure of each interface and of the hooks puts them in place.
func (l *Links) SetPrograms(programs Programs) error {
	ids := map[*ebpf.Program]ebpf.ProgramID{}
	for _, program := range []*ebpf.Program{programs.FromPod, programs.ToPod, programs.Judge} {
		if program == nil {
			continue
		}
		info, err := program.Info()
		if err != nil {
			return fmt.Errorf("program to attach: %w", err)
		}
		id, ok := info.ID()
		if !ok {
			return errors.New("program to attach: the kernel does not report its id")
		}
		ids[program] = id
	}
	l.programs, l.ids = programs, ids
	return nil
}

// Close closes the links; pinned links stay attached.
func (l *Links) Close() error {
	var errs []error
	for _, opened := range l.tcx {
		errs = append(errs, opened.Close())
	}
	for _, opened := range l.hooks {
		errs = append(errs, opened.Close())
	}
	clear(l.tcx)
	clear(l.hooks)
	return errors.Join(errs...)
}

// loadPinned opens the link of that name in dir or one of the older directories; nil: there is none.
func (l *Links) loadPinned(name string) (link.Link, error) {
	for _, dir := range append([]string{l.dir}, l.older...) {
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

// ensurePinned pins the link in l.dir unless it is pinned there, and reports whether it had to. A pin in an older
// directory is moved.
func (l *Links) ensurePinned(opened link.Link, name string) (bool, error) {
	path := filepath.Join(l.dir, name)
	if _, err := os.Lstat(path); err == nil {
		return false, nil
	}
	for _, dir := range l.older {
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
func (l *Links) drop(opened link.Link, name string) error {
	errs := []error{l.unpin(name)}
	if opened != nil {
		errs = append(errs, opened.Close())
	}
	return errors.Join(errs...)
}

func (l *Links) unpin(name string) error {
	var errs []error
	for _, dir := range append([]string{l.dir}, l.older...) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("unpin link: %w", err))
		}
	}
	return errors.Join(errs...)
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
