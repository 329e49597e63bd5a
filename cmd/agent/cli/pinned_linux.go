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

// orphanCheck is how it stands with an agent that does not answer. None is needed where nothing is enforced; what an
// earlier one left enforced is cut off from every change.
func (o *checkOptions) orphanCheck() (nodeCheck, error) {
	check := nodeCheck{Name: "agent", OK: true, Detail: "not running"}
	dirs, err := linkDirs(o.bpffs, o.instance)
	if err != nil || len(dirs) == 0 {
		return check, err
	}
	interfaces := map[uint32]bool{}
	for _, dir := range dirs {
		// Of a link that cannot be read nothing is counted; that there are some is what matters.
		list, _ := attach.ListPinned(dir)
		for _, a := range list {
			interfaces[a.Ifindex] = interfaces[a.Ifindex] || a.Ingress.Attached || a.Egress.Attached
		}
	}
	attached := 0
	for _, is := range interfaces {
		if is {
			attached++
		}
	}
	check.OK = false
	check.Detail = "no agent answers on " + o.socketPath() + ", and policy of an earlier one is enforced on " + count(attached, "interface") +
		": changes are not followed, and new pods get no network; start margay run, or remove it with margay cleanup"
	return check, nil
}
