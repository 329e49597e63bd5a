package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Layout is the version of everything pinned: raise it with any change to the content of a map.
const Layout = 7

// ErrLocked says that another agent of the same instance runs.
var ErrLocked = errors.New("another agent of this instance is running")

// InstanceDir is the directory of all layout versions of one instance. instance may be empty.
func InstanceDir(bpffs, instance string) string {
	if instance == "" {
		return filepath.Join(bpffs, "margay")
	}
	return filepath.Join(bpffs, "margay-"+instance)
}

func layoutDir(bpffs, instance string) string {
	return filepath.Join(InstanceDir(bpffs, instance), "v"+strconv.Itoa(Layout))
}

// Mount mounts the BPF file system on dir unless dir is in one already.
func Mount(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount bpffs: %w", err)
	}
	mounted, err := isBPFFS(dir)
	if err != nil || mounted {
		return err
	}
	if err := unix.Mount("bpf", dir, "bpf", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil {
		return fmt.Errorf("mount bpffs on %s: %w; have the node mount one (mount -t bpf bpf %s)", dir, err, dir)
	}
	return nil
}

func isBPFFS(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("stat file system of %s: %w", dir, err)
	}
	return uint32(st.Type) == unix.BPF_FS_MAGIC, nil
}

// OtherLayouts lists the directories of other layout versions of the instance, which an upgrade leaves to be removed
// once no link uses their programs.
func OtherLayouts(bpffs, instance string) ([]string, error) {
	dir := InstanceDir(bpffs, instance)
	list, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list layouts: %w", err)
	}
	var others []string
	for _, entry := range list {
		version, isLayout := strings.CutPrefix(entry.Name(), "v")
		if n, err := strconv.Atoi(version); isLayout && err == nil && n != Layout {
			others = append(others, filepath.Join(dir, entry.Name()))
		}
	}
	return others, nil
}
