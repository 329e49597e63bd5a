//go:build linux

package changes

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// stableMemory is the kernel's memory once it has not changed by a percent for five times wait: the kernel frees much of what is not used
// any more only then. NaN: the machine does not say.
func stableMemory(wait time.Duration) float64 {
	before, err := kernelMemory()
	for same, tries := 0, 0; same < 5 && tries < 50 && err == nil; tries++ {
		time.Sleep(wait)
		var now int
		now, err = kernelMemory()
		if same++; max(now, before)-min(now, before) > before/100 {
			same, before = 0, now
		}
	}
	if err != nil {
		return math.NaN()
	}
	return float64(before)
}

// kernelMemory is the kernel's memory that this process's control group is charged for, in bytes.
func kernelMemory() (int, error) {
	group, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(group)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch controllers {
		case "memory":
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", path, "memory.kmem.usage_in_bytes"))
			if err != nil {
				return 0, err
			}
			return strconv.Atoi(strings.TrimSpace(string(text)))
		case "":
			if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path, "memory.stat")); err == nil {
				return kernelOf(text)
			}
		}
	}
	return 0, fmt.Errorf("no control group of memory in %q", group)
}

// kernelOf is the value of kernel in memory.stat.
func kernelOf(stat []byte) (int, error) {
	for lines := bufio.NewScanner(bytes.NewReader(stat)); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), " "); name == "kernel" {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("memory.stat has no value kernel")
}
