package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// OtherPrefix is the error of a dataplane that changes nothing, since an agent with another prefix of interfaces has left policy in force on some.
// does is what it does there: "enforces", or "may enforce" if that is not known.
func OtherPrefix(prefix, does string, interfaces []string) error {
	return fmt.Errorf("nothing is changed, since an agent with another prefix than %q %s policy on interfaces of pods (%s): is interface-prefix right? "+
		"If it is, move these pods to other nodes, or remove what was left with margay cleanup", prefix, does, FewNames(interfaces))
}

// FewNames lists names in order, the first of them if there are many.
func FewNames(names []string) string {
	const most = 5
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
