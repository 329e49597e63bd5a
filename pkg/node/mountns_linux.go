package node

import (
	"fmt"
	"os"
	"path/filepath"
)

// initialPIDNamespace is the namespace of processes that the kernel starts with; its number is part of the kernel's API.
const initialPIDNamespace = "pid:[4026531836]"

// EndsWithProcess reports whether what is pinned is gone once this process ends: the process has mounted the BPF file system itself since s
// was found, in a mount namespace of its own, as ip netns exec and containers have. If that cannot be seen, it reports false.
func (s StartState) EndsWithProcess() bool {
	return !s.mounted && isBPFFS(s.config.BPFFS) && ownMounts("/proc", os.Getpid(), os.Getppid())
}

// ownMounts reports whether a process is in another mount namespace than the node: than the first process, or the one that started it, or
// in a container. A namespace that may not be read says nothing.
func ownMounts(proc string, pid, parent int) bool {
	of := func(pid int, kind string) string {
		link, err := os.Readlink(filepath.Join(proc, fmt.Sprint(pid), "ns", kind))
		if err != nil {
			return ""
		}
		return link
	}
	own := of(pid, "mnt")
	for _, other := range []string{of(1, "mnt"), of(parent, "mnt")} {
		if own != "" && other != "" && other != own {
			return true
		}
	}
	processes := of(pid, "pid")
	return processes != "" && processes != initialPIDNamespace
}
