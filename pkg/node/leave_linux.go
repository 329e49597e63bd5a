package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
)

// StartState is what there was of an instance before an agent of it started.
type StartState struct {
	config   config.Config
	pinned   bool // its directory of maps
	mounted  bool // the BPF file system
	mountDir bool // where that is, or was to be
}

// FindStartState looks for what there is of the instance of c. It is called before anything of it is made.
func FindStartState(c config.Config) StartState {
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	return StartState{config: c, pinned: exists(bpfmaps.InstanceDir(c.BPFFS, c.Instance)), mounted: isBPFFS(c.BPFFS), mountDir: exists(c.BPFFS)}
}

func isBPFFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && uint32(st.Type) == unix.BPF_FS_MAGIC
}

// Restore removes the maps, the socket and the mount that a failed agent has made since. State that it found stays, and
// so does everything once any program is attached: policy is enforced with it. Failures to remove something are logged.
func (s StartState) Restore(log *slog.Logger) {
	if err := s.remove(); err != nil {
		log.Warn("the failed start has left state behind; margay cleanup removes it", "err", err)
	}
}

func (s StartState) remove() error {
	if s.pinned {
		return nil
	}
	links, err := linkDirs(s.config)
	if err != nil || len(links) > 0 {
		return err
	}
	dir := bpfmaps.InstanceDir(s.config.BPFFS, s.config.Instance)
	if _, err := os.Lstat(dir); err != nil {
		dir = "" // the start has not come so far, or could not make it
	}
	unlock, err := lockInstance(dir)
	if errors.Is(err, bpfmaps.ErrLocked) {
		return nil // another agent's by now
	}
	if err != nil {
		return err
	}
	var c cleanup
	errs := []error{c.pinned(dir), unlock()}
	if err := c.socket(s.config); !errors.Is(err, inspect.ErrNotLeft) { // else the start found it, and has failed for it perhaps
		errs = append(errs, err)
	}
	if s.mounted || !isBPFFS(s.config.BPFFS) {
		return errors.Join(errs...)
	}
	// The kernel's own files in it have a dot in their names, which nothing that is pinned may have.
	if others, err := filepath.Glob(filepath.Join(s.config.BPFFS, "*")); err != nil || slices.ContainsFunc(others, pinnedName) {
		return errors.Join(append(errs, err)...)
	}
	if err := unix.Unmount(s.config.BPFFS, 0); err != nil {
		return errors.Join(append(errs, fmt.Errorf("unmount %s: %w", s.config.BPFFS, err))...)
	}
	if !s.mountDir {
		errs = append(errs, os.Remove(s.config.BPFFS))
	}
	return errors.Join(errs...)
}

func pinnedName(path string) bool { return !strings.Contains(filepath.Base(path), ".") }
