package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// confinement is how a container of the DaemonSet runs: as root with few capabilities and no way to get more, in a root
// file system that holds its command and nothing else, all of it read-only but what is mounted writable.
type confinement struct {
	Capabilities []uint
	Root         string   // an empty directory
	Readable     []string // files and directories, at the same place inside
	Writable     []string
	Command      []string
}

// confinedEnv has the confinement of a process that is to confine itself before it becomes its command.
const confinedEnv = "MGY_CONFINED"

func init() {
	if text := os.Getenv(confinedEnv); text != "" {
		fmt.Fprintln(os.Stderr, "confine:", confine(text))
		os.Exit(126)
	}
}

// confine does not return if it succeeds. Capabilities and mounts are the thread's, which the command inherits.
func confine(text string) error {
	runtime.LockOSThread()
	var c confinement
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := c.enterRoot(); err != nil {
		return err
	}
	for capability := range uint(64) {
		if slices.Contains(c.Capabilities, capability) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err == unix.EINVAL {
			break // the kernel knows no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	os.Unsetenv(confinedEnv)
	return fmt.Errorf("%s: %w", c.Command[0], syscall.Exec(c.Command[0], c.Command, os.Environ()))
}

// enterRoot makes c.Root the root, for this process only.
func (c *confinement) enterRoot() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	const recursive = unix.AT_RECURSIVE
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", recursive, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("mounts of its own: %w", err)
	}
	if err := unix.Mount("root", c.Root, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount the root: %w", err)
	}
	for _, path := range append(c.Readable, c.Writable...) {
		if err := bind(path, filepath.Join(c.Root, path)); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, c.Root, recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only root: %w", err)
	}
	for _, path := range c.Writable {
		again := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, filepath.Join(c.Root, path), recursive, again); err != nil {
			return fmt.Errorf("writable %s: %w", path, err)
		}
	}
	if err := unix.Chroot(c.Root); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	return unix.Chdir("/")
}

// bind mounts a file or directory at a place that does not exist yet.
func bind(path, at string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(at, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return unix.Mount(path, at, "", unix.MS_BIND|unix.MS_REC, "")
}

// confined makes a command run as in the DaemonSet's container, with these capabilities. It finds itself and what is
// mounted at the same places as outside.
func confined(t *testing.T, cmd *exec.Cmd, has []corev1.Capability, readable, writable []string) {
	t.Helper()
	c := confinement{
		Root: t.TempDir(), Readable: append([]string{"/proc", "/sys", cmd.Path}, readable...), Writable: writable,
		Command: append([]string{cmd.Path}, cmd.Args[1:]...),
	}
	for _, name := range has {
		number, known := capabilities[name]
		if !known {
			t.Fatalf("capability %s has no number here", name)
		}
		c.Capabilities = append(c.Capabilities, number)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args, cmd.Env = self, []string{self}, append(os.Environ(), confinedEnv+"="+string(text))
}
