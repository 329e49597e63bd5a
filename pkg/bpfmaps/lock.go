package bpfmaps

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lock takes the instance's lock: a flock of its directory, which the kernel lets go when the process ends.
func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
	}
	return f, nil
}

// LockHolder is the process that holds the instance's lock: an agent that runs. It reads the kernel's list and does not
// try the lock, so it never gets in the way of a start. found is false if no process holds it, or none of this PID
// namespace. An instance that has no directory has no holder.
// Source: proc_locks(5).
func LockHolder(bpffs, instance string) (pid int, found bool, err error) {
	dir := InstanceDir(bpffs, instance)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("find who holds the lock: stat %s: %w", dir, err)
	}
	list, err := os.Open("/proc/locks")
	if err != nil {
		return 0, false, fmt.Errorf("find who holds the lock of %s: %w", dir, err)
	}
	defer list.Close()
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if pid, found := holder(lines.Text(), file); found {
			return pid, true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return 0, false, fmt.Errorf("find who holds the lock of %s: read /proc/locks: %w", dir, err)
	}
	return 0, false, nil
}

// holder is the process that a line of /proc/locks names, if the line is of a flock of the file. A process that waits
// for a lock has "->" before the kind and holds none.
func holder(line, file string) (pid int, found bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
		return 0, false
	}
	pid, err := strconv.Atoi(f[4])
	return pid, err == nil && pid > 0
}
