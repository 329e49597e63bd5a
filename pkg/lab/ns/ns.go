// Package ns creates, enters and removes named network namespaces. A named namespace is a bind mount under
// /run/netns, so ip netns, nsenter and bpftool see it too. It needs CAP_SYS_ADMIN.
package ns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Dir is where named namespaces are mounted.
const Dir = "/run/netns"

const threadPath = "/proc/thread-self/ns/net"

// NS is an open named network namespace. It is safe for concurrent use.
type NS struct {
	name string
	file *os.File
	once sync.Once
	err  error
}

// Create makes a new namespace with the given name; a name that exists already is an error (fs.ErrExist). The caller
// owns it and ends it with Close. The calling thread stays where it is.
func Create(name string) (*NS, error) {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return nil, fmt.Errorf("create network namespace %q: %w", name, err)
	}
	path := filepath.Join(Dir, name)
	mountPoint, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, fmt.Errorf("create network namespace %q: %w", name, err)
	}
	mountPoint.Close()
	if err := mountNew(path); err != nil {
		return nil, errors.Join(fmt.Errorf("create network namespace %q: %w", name, err), Remove(name))
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace %q: %w", name, err), Remove(name))
	}
	return &NS{name: name, file: opened}, nil
}

// mountNew makes a namespace and mounts it at path. The work happens on a thread of its own, which the runtime ends
// when it cannot be brought back.
func mountNew(path string) error {
	done := make(chan error, 1)
	go func() {
		done <- onThread(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount(threadPath, path, "none", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("bind mount: %w", err)
			}
			return nil
		})
	}()
	return <-done
}

// onThread runs fn with the goroutine locked to its thread and brings the thread back to the namespace it was in,
// also when fn ends by runtime.Goexit or a panic. If that fails the goroutine stays locked, so the thread ends with it.
func onThread(fn func() error) (err error) {
	runtime.LockOSThread()
	before, err := os.Open(threadPath)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer func() {
		defer before.Close()
		if e := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); e != nil {
			err = errors.Join(err, fmt.Errorf("return to own network namespace: %w", e))
			return
		}
		runtime.UnlockOSThread()
	}()
	return fn()
}

// Name is the name the namespace was created with.
func (n *NS) Name() string { return n.name }

// Path is where it is mounted.
func (n *NS) Path() string { return filepath.Join(Dir, n.name) }

// Fd is its file descriptor, valid until Close.
func (n *NS) Fd() int { return int(n.file.Fd()) }

// Do runs fn inside the namespace, on the calling goroutine, and returns fn's error. Sockets and processes that fn
// makes stay in the namespace; goroutines that fn starts do not run in it. Calls may be nested.
func (n *NS) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %q: %w", n.name, err)
		}
		return fn()
	})
}

// Enter locks the calling goroutine to its thread and moves it into the namespace until leave is called on the same
// goroutine.
func (n *NS) Enter() (leave func() error, err error) {
	runtime.LockOSThread()
	before, err := os.Open(threadPath)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("open own network namespace: %w", err)
	}
	if err := unix.Setns(n.Fd(), unix.CLONE_NEWNET); err != nil {
		before.Close()
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("enter network namespace %q: %w", n.name, err)
	}
	return func() error {
		defer before.Close()
		if err := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("leave network namespace %q: %w", n.name, err)
		}
		runtime.UnlockOSThread()
		return nil
	}, nil
}

// Close removes the name and the descriptor. The kernel frees the namespace, and interfaces in it, once no socket,
// process or descriptor holds it any more. Further calls return the result of the first.
func (n *NS) Close() error {
	n.once.Do(func() { n.err = errors.Join(n.uncover(), n.file.Close(), Remove(n.name)) })
	return n.err
}

// uncover removes the mount that Create made if it is covered. The first "ip netns add" on a machine binds Dir to itself with
// everything below: the name then leads to a copy of the mount, and cannot be removed while the mount below is there.
func (n *NS) uncover() error {
	err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", n.Fd()), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not mounted any more
		return fmt.Errorf("unmount network namespace %q by its descriptor: %w", n.name, err)
	}
	return nil
}

// Remove takes away the name of a namespace, also one that another process left. A name that is not there is no error.
func Remove(name string) error {
	path := filepath.Join(Dir, name)
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // EINVAL: not a mount point
		return fmt.Errorf("unmount network namespace %q: %w", name, err)
	}
	err = os.Remove(path)
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("remove network namespace %q: a later mount of %s covers the one of this name; umount --lazy %s uncovers it, "+
			"and hides names that were added since: %w", name, Dir, Dir, err)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("remove network namespace %q: %w", name, err)
	}
	return nil
}

// List returns the names of all named namespaces, sorted.
func List() ([]string, error) {
	entries, err := os.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
