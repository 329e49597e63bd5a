package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
)

// PinDir is what one look at the directory of the maps' pins shows. Two values are equal if no pin was made, removed or renamed there
// in between, as far as the clock of the file system can say: a few milliseconds. The zero value equals none that PinDir returns.
type PinDir struct {
	device, inode uint64
	changed       syscall.Timespec
}

// PinDir looks at the directory, by one system call. It is the zero value if the directory is not there.
func (m *Maps) PinDir() PinDir {
	var s syscall.Stat_t
	if err := syscall.Stat(m.dir, &s); err != nil {
		return PinDir{}
	}
	return PinDir{device: uint64(s.Dev), inode: s.Ino, changed: s.Mtim}
}

// Pinned reports whether something is pinned in every place where these maps were pinned. It costs a system call for each map.
func (m *Maps) Pinned() bool {
	for name := range m.maps {
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err != nil {
			return false
		}
	}
	return true
}

// Repin pins the maps again whose pins somebody has removed, and returns how many. Without pins the kernel frees everything when this
// process ends. It mounts the file system again if that is gone, makes the directories, that of links included, and locks the
// instance's directory if that is another one now (ErrLocked: another agent was faster). A pin of another map is an error, and stays.
func (m *Maps) Repin() (repaired int, err error) {
	instance := filepath.Dir(m.dir)
	if err := Mount(filepath.Dir(instance)); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(m.LinkDir(), 0o700); err != nil {
		return 0, fmt.Errorf("pin maps again: %w", err)
	}
	if err := m.relock(instance); err != nil {
		return 0, err
	}
	var errs []error
	for _, name := range m.names() {
		pinned, err := m.repin(name)
		if pinned {
			repaired++
		}
		errs = append(errs, err)
	}
	return repaired, errors.Join(errs...)
}

// relock locks the instance's directory if it is not the one that is locked.
func (m *Maps) relock(instance string) error {
	now, err := os.Stat(instance)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if was, err := m.lock.Stat(); err == nil && os.SameFile(was, now) {
		return nil
	}
	renewed, err := lock(instance)
	if err != nil {
		return err
	}
	err = m.lock.Close()
	m.lock = renewed
	return err
}

// repin pins a map unless it is pinned, and reports whether it had to.
func (m *Maps) repin(name string) (bool, error) {
	path, ours := filepath.Join(m.dir, name), m.maps[name]
	pinned, err := ebpf.LoadPinnedMap(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		// The library may believe that the map is pinned still.
		if err := errors.Join(ours.Unpin(), ours.Pin(path)); err != nil {
			return false, fmt.Errorf("pin map %s again: %w", path, err)
		}
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("open map %s: %w", path, err)
	}
	defer pinned.Close()
	want, err := idOf(ours)
	if err != nil {
		return false, err
	}
	if is, err := idOf(pinned); err != nil || is != want {
		return false, fmt.Errorf("another map is pinned at %s: remove it, or this agent's map is lost when it ends (%w)", path, errors.Join(err, errForeignPin))
	}
	return false, nil
}

var errForeignPin = errors.New("not a map of this agent")

// Repin pins the arrays of slots in use that are not pinned, as far as they can be opened without that: by a process with CAP_SYS_ADMIN. Others
// have to be published again, see Altered.
func (s *Slots) Repin() error {
	var errs []error
	for _, slot := range s.Live() {
		for p := range parts {
			inner, err := s.arrays.open(p, slot)
			if errors.Is(err, ebpf.ErrKeyNotExist) || errors.Is(err, errUnpinned) {
				continue
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
			errs = append(errs, s.arrays.ensurePinned(p, slot, inner), inner.Close())
		}
	}
	return errors.Join(errs...)
}
