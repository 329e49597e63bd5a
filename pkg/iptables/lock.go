package iptables

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lock is the file that iptables-legacy holds locked from reading a table until it has written it. kube-proxy and CNI plugins
// hold it for seconds on large clusters.
type lock struct{ path string }

// wait returns once the lock was free, with the time that it waited. It does not keep the lock. The error is a *LockedError if ctx
// ended first.
func (l lock) wait(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	f, err := os.OpenFile(l.path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return 0, fmt.Errorf("open the lock of iptables: %w", err)
	}
	defer f.Close()
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return time.Since(start), nil // closing the file releases it
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return time.Since(start), fmt.Errorf("lock %s: %w", l.path, err)
		}
		pause.Reset(min(max(time.Since(start)/10, time.Millisecond), 50*time.Millisecond))
		select {
		case <-ctx.Done():
			return time.Since(start), &LockedError{Path: l.path, Waited: time.Since(start), Holder: l.holder(f), Err: context.Cause(ctx)}
		case <-pause.C:
		}
	}
}

// held reports whether another process holds the lock now; false if the file cannot be opened.
func (l lock) held() bool {
	f, err := os.OpenFile(l.path, os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// holder names the process that holds the lock; empty: this process may not see it.
func (l lock) holder(f *os.File) string {
	var st unix.Stat_t
	locks, err := os.Open("/proc/locks")
	if err != nil || unix.Fstat(int(f.Fd()), &st) != nil {
		return ""
	}
	defer locks.Close()
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino)
	for scanner := bufio.NewScanner(locks); scanner.Scan(); {
		fields := strings.Fields(scanner.Text()) // "1: FLOCK ADVISORY WRITE 123 00:19:456 0 EOF"; -> after the number: waiting
		if len(fields) < 6 || fields[1] != "FLOCK" || fields[5] != inode {
			continue
		}
		name, err := os.ReadFile(filepath.Join("/proc", fields[4], "comm"))
		if err != nil {
			return "process " + fields[4]
		}
		return fmt.Sprintf("process %s (%s)", fields[4], strings.TrimSpace(string(name)))
	}
	return ""
}
