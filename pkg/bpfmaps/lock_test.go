package bpfmaps

import (
	"os"
	"testing"
)

func TestWhoHoldsTheLockIsKnown(t *testing.T) {
	m, o := openMaps(t)
	pid, found, err := LockHolder(o.BPFFS, o.Instance)
	if err != nil || !found || pid != os.Getpid() {
		t.Errorf("process %d, %t, %v; this process %d holds the lock", pid, found, err, os.Getpid())
	}
	if pid, found, err := LockHolder(o.BPFFS, "another"); err != nil || found {
		t.Errorf("another instance: process %d, %t, %v", pid, found, err)
	}
	must(t, m.Close())
	if pid, found, err := LockHolder(o.BPFFS, o.Instance); err != nil || found {
		t.Errorf("after Close: process %d, %t, %v", pid, found, err)
	}
}

func TestLinesOfLocks(t *testing.T) {
	const file = "00:21:12345"
	for line, want := range map[string]int{
		"1: FLOCK  ADVISORY  WRITE 1234 00:21:12345 0 EOF":    1234,
		"1: POSIX  ADVISORY  WRITE 1234 00:21:12345 0 EOF":    0,
		"1: FLOCK  ADVISORY  WRITE 1234 00:21:123456 0 EOF":   0,
		"1: -> FLOCK  ADVISORY  WRITE 1234 00:21:12345 0 EOF": 0,
		"1: FLOCK  ADVISORY  WRITE -1 00:21:12345 0 EOF":      0,
		"": 0,
	} {
		if pid, found := holder(line, file); found != (want > 0) || found && pid != want {
			t.Errorf("%q: %d, %t; want %d", line, pid, found, want)
		}
	}
}
