// Package cgroup reads what control groups of this process limit.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// Limit is the lowest limit of memory that applies to a process.
type Limit struct {
	Bytes uint64 // math.MaxUint64: there is none
	File  string // that says so, below the root of the file system given; empty: there is none
}

// None says that nothing limits memory.
func (l Limit) None() bool { return l.File == "" }

// unlimited is the least that version 1 says when there is no limit: the highest number of whole pages.
const unlimited = math.MaxInt64 - 1<<20

// MemoryLimit is the lowest limit among the control groups of this process and those they are in, of version 2 and of
// version 1 as they are usually mounted. root is the root of the file system, "/" as fs.FS. Groups that are not to be
// seen from here, as in a container without their file system, count as without a limit.
func MemoryLimit(root fs.FS) (Limit, error) {
	limit := Limit{Bytes: math.MaxUint64}
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit, fmt.Errorf("read control groups of this process: %w", err)
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var files []string
		switch {
		case parts[0] == "0" && parts[1] == "":
			files = upwards("sys/fs/cgroup", parts[2], "memory.max")
			files = append(files, upwards("sys/fs/cgroup/unified", parts[2], "memory.max")...)
		case strings.Contains(","+parts[1]+",", ",memory,"):
			files = upwards("sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		}
		for _, file := range files {
			if err := limit.lower(root, file); err != nil {
				return limit, err
			}
		}
	}
	return limit, nil
}

// upwards are the files of one name of a group and of all it is in.
func upwards(mount, group, name string) []string {
	var files []string
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		files = append(files, path.Join(mount, dir, name))
		if dir == "/" {
			return files
		}
	}
}

// lower reads one file, which may be missing.
func (l *Limit) lower(root fs.FS, file string) error {
	text, err := fs.ReadFile(root, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read limit of memory: %w", err)
	}
	value := strings.TrimSpace(string(text))
	if value == "max" {
		return nil
	}
	bytes, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return fmt.Errorf("read limit of memory: %s: %w", file, err)
	}
	if bytes < unlimited && bytes < l.Bytes {
		l.Bytes, l.File = bytes, file
	}
	return nil
}
