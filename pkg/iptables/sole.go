package iptables

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotSole is the error of Sole if another process has reserved the network namespace.
var ErrNotSole = errors.New("another agent enforces with iptables in this network namespace")

// Sole reserves the calling thread's network namespace for this process: until the result is closed or the process ends, Sole fails
// in every other process with ErrNotSole. Two agents would treat each other's chains as those of a predecessor. Sole locks one byte
// of the lock file of iptables, at the offset that is the namespace's inode number: all agents of a machine share that file, and only
// root may open it. Users of iptables lock the file by flock, which is independent of this lock. If the file cannot be opened or its
// file system has no such locks, nothing is reserved and the error is nil.
func Sole() (io.Closer, error) {
	var here unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return nil, fmt.Errorf("find the network namespace: %w", err)
	}
	f, err := os.OpenFile(commonLock, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return io.NopCloser(nil), nil
	}
	whole := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(here.Ino), Len: 1}
	switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole); {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EACCES):
		return nil, errors.Join(ErrNotSole, f.Close())
	case err != nil:
		return f, nil // a file system without such locks
	}
	return f, nil
}

// Reserved reports whether a process has reserved the calling thread's network namespace with Sole. It reserves nothing.
func Reserved() (bool, error) {
	var here unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &here); err != nil {
		return false, fmt.Errorf("find the network namespace: %w", err)
	}
	f, err := os.Open(commonLock) // to ask for a lock takes no right to write, which a read-only /run does not give
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	whole := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(here.Ino), Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &whole); err != nil {
		return false, fmt.Errorf("read the locks of %s: %w", commonLock, err)
	}
	return whole.Type != unix.F_UNLCK, nil
}
