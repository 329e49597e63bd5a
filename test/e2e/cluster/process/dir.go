package process

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// dirs are where directories are made: in memory if that is there.
func dirs() []string { return []string{"/dev/shm", os.TempDir()} }

// NewDir makes a directory for everything a cluster writes. The caller removes it with RemoveDir; if it does not come to
// that, RemoveLeftovers of a later run does.
func NewDir() (string, error) {
	var errs []error
	for _, parent := range dirs() {
		dir := filepath.Join(parent, ns.Prefix+ns.NewID())
		if err := os.Mkdir(dir, 0o700); err != nil {
			errs = append(errs, err)
			continue
		}
		return dir, nil
	}
	return "", fmt.Errorf("make a directory for the cluster: %w", errors.Join(errs...))
}

// RemoveDir unmounts what is mounted below the directory and removes it with all that is in it.
func RemoveDir(dir string) error {
	mounts, err := mountsBelow(dir)
	errs := []error{err}
	for _, m := range mounts {
		if err := unix.Unmount(m, unix.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	if errors.Join(errs...) == nil { // never delete through a mount
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// mountsBelow are mount points below dir, the inner ones first.
func mountsBelow(dir string) (points []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if field := strings.Fields(lines.Text()); len(field) > 4 && strings.HasPrefix(field[4], dir+"/") {
			points = append([]string{field[4]}, points...)
		}
	}
	return points, lines.Err()
}

// RemoveLeftovers removes the network namespaces and directories of earlier runs that were killed, and returns their
// names. Those of processes that run are not touched.
func RemoveLeftovers() (removed []string, err error) {
	removed, err = ns.RemoveLeftovers(ns.Prefix)
	errs := []error{err}
	for _, parent := range dirs() {
		found, err := filepath.Glob(filepath.Join(parent, ns.Prefix+"*"))
		errs = append(errs, err)
		for _, dir := range found {
			if !ns.Abandoned(filepath.Base(dir)) {
				continue
			}
			errs = append(errs, RemoveDir(dir))
			removed = append(removed, dir)
		}
	}
	return removed, errors.Join(errs...)
}
