package cgroup

import (
	"math"
	"os"
	"testing"
	"testing/fstest"
)

func files(pairs ...string) fstest.MapFS {
	root := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		root[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1] + "\n")}
	}
	return root
}

func TestTheLowestLimitOfAGroupAndItsParentsCounts(t *testing.T) {
	for name, c := range map[string]struct {
		root  fstest.MapFS
		bytes uint64
		file  string
	}{
		"version 2, own group": {files(
			"proc/self/cgroup", "0::/kubepods/pod1/c", "sys/fs/cgroup/kubepods/pod1/c/memory.max", "1000",
			"sys/fs/cgroup/kubepods/pod1/memory.max", "max", "sys/fs/cgroup/kubepods/memory.max", "9000",
		), 1000, "sys/fs/cgroup/kubepods/pod1/c/memory.max"},
		"version 2, a parent": {files(
			"proc/self/cgroup", "0::/a/b", "sys/fs/cgroup/a/b/memory.max", "1000", "sys/fs/cgroup/a/memory.max", "500",
		), 500, "sys/fs/cgroup/a/memory.max"},
		"version 2, a namespace of groups": {files(
			"proc/self/cgroup", "0::/", "sys/fs/cgroup/memory.max", "700",
		), 700, "sys/fs/cgroup/memory.max"},
		"version 2, moved out of the namespace": {files(
			"proc/self/cgroup", "0::/../../x", "sys/fs/cgroup/memory.max", "700",
		), 700, "sys/fs/cgroup/memory.max"},
		"version 1": {files(
			"proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory:/c\n0::/", "sys/fs/cgroup/memory/c/memory.limit_in_bytes", "800",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712",
		), 800, "sys/fs/cgroup/memory/c/memory.limit_in_bytes"},
		"version 1, none": {files(
			"proc/self/cgroup", "4:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712",
		), math.MaxUint64, ""},
		"none":           {files("proc/self/cgroup", "0::/a", "sys/fs/cgroup/a/memory.max", "max"), math.MaxUint64, ""},
		"not to be seen": {files("proc/self/cgroup", "0::/a"), math.MaxUint64, ""},
	} {
		limit, err := MemoryLimit(c.root)
		if err != nil || limit.Bytes != c.bytes || limit.File != c.file || limit.None() != (c.file == "") {
			t.Errorf("%s: %+v, %v; want %d by %q", name, limit, err, c.bytes, c.file)
		}
	}
}

func TestALimitThatCannotBeReadIsAnError(t *testing.T) {
	for name, root := range map[string]fstest.MapFS{
		"no process": files(), "no number": files("proc/self/cgroup", "0::/", "sys/fs/cgroup/memory.max", "much"),
	} {
		if limit, err := MemoryLimit(root); err == nil {
			t.Errorf("%s: %+v", name, limit)
		}
	}
}

func TestTheGroupsOfThisProcessCanBeRead(t *testing.T) {
	if _, err := os.Stat("/proc/self/cgroup"); err != nil {
		t.Skip("this kernel has no control groups")
	}
	if limit, err := MemoryLimit(os.DirFS("/")); err != nil {
		t.Error(limit, err)
	}
}
