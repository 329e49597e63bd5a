package cli

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// linkDirs are where links of the instance are pinned, one directory for each map layout that has any.
func linkDirs(bpffs, instance string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(bpfmaps.InstanceDir(bpffs, instance), "v*", bpfmaps.LinksName))
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

// ownNumbers reports whether interface numbers of the instance are those of this network namespace: its programs run on an
// interface here. In another namespace the same numbers are other interfaces'.
func ownNumbers(linkDirs ...string) bool {
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

// interfaceNamed is the name of an interface of this network namespace; empty: there is none of that number.
func interfaceNamed(ifindex int) string {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		return i.Name
	}
	return ""
}

// orphaned returns on how many interfaces of this network namespace an agent of the instance that has ended enforces policy. found: it
// has left programs at all.
func orphaned(bpffs, instance string) (interfaces int, found bool, err error) {
	dirs, err := linkDirs(bpffs, instance)
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
