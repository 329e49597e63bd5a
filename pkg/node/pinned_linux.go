package node

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/config"
)

// linkDirs are where links of the instance are pinned, one directory for each map layout that has any.
func linkDirs(of config.Config) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(bpfmaps.InstanceDir(of.BPFFS, of.Instance), "v*", bpfmaps.LinksName))
	if err != nil {
		return nil, err
	}
	var filled []string
	var errs []error
	for _, dir := range dirs {
		pins, err := os.ReadDir(dir)
		errs = append(errs, err)
		if len(pins) > 0 {
			filled = append(filled, dir)
		}
	}
	return filled, errors.Join(errs...)
}

// OtherInstances returns the names of the instances beside this one that have links below the same BPF file system, sorted; the one
// without a name is "".
func OtherInstances(of config.Config) ([]string, error) {
	dirs, err := bpfmaps.LinksBeside(bpfmaps.InstanceDir(of.BPFFS, of.Instance))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		of.Instance = name
		filled, err := linkDirs(of)
		if err != nil {
			return nil, err
		}
		if len(filled) > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// OwnNumbers reports whether interface numbers of the instance are those of this network namespace: its programs run on an
// interface here. In another namespace the same numbers are other interfaces'.
func OwnNumbers(linkDirs ...string) bool {
	for _, dir := range linkDirs {
		// A link that cannot be read says nothing.
		list, _ := attach.ListPinned(dir)
		for _, a := range list {
			if a.Ingress.Here || a.Egress.Here {
				return true
			}
		}
	}
	return false
}

// InterfaceNamed is the name of an interface of this network namespace; empty: there is none of that number. It asks for that
// interface alone: net.InterfaceByIndex lists all, which takes tools seconds on a node with hundreds of pods.
func InterfaceNamed(ifindex int) string {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return ""
	}
	return l.Attrs().Name
}

// Orphaned returns on how many interfaces of this network namespace an agent of the instance that has ended enforces policy. found: it
// has left programs at all.
func Orphaned(of config.Config) (interfaces int, found bool, err error) {
	dirs, err := linkDirs(of)
	if err != nil || len(dirs) == 0 {
		return 0, false, err
	}
	attached := map[uint32]bool{}
	for _, dir := range dirs {
		// Of a link that cannot be read nothing is counted; that there are some is what matters.
		list, _ := attach.ListPinned(dir)
		for _, a := range list {
			if a.Ingress.Attached || a.Egress.Attached {
				attached[a.Ifindex] = true
			}
		}
	}
	return len(attached), true, nil
}

// Stopped reports whether a process is stopped, by a signal or a debugger.
// Source: proc_pid_stat(5).
func Stopped(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return false
	}
	// The name before it, in parentheses, may have any characters.
	state := strings.TrimSpace(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	return strings.HasPrefix(state, "T") || strings.HasPrefix(state, "t")
}
