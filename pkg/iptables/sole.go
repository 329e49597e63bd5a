package iptables

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotSole says that another process has the network namespace to itself.
var ErrNotSole = errors.New("another agent enforces with iptables in this network namespace")

// Sole has no other process that calls it succeed in this network namespace until the result is closed, or this process ends: two
// agents would take each other's chains for those of a predecessor. It locks a byte of the lock file, whose place is the namespace's
// number: all agents of a machine share that file, and only root may open it. Users of iptables lock it as a whole by flock, which
// is another lock. Where the file cannot be opened nothing is locked.
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
