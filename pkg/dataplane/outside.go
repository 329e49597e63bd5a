package dataplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Present returns those of the named interfaces that are there.
type Present func(names map[string]bool) (map[string]bool, error)

// Inside returns an error while policy is in force on interfaces outside of the prefix: nothing of this agent would judge their packets. Either
// prefix may be the wrong one. The present one is taken for it. enforced are the names of the interfaces with policy; those that are there no
// more do not count.
func Inside(prefix string, enforced map[string]bool, present Present) error {
	outside := maps.Clone(enforced)
	maps.DeleteFunc(outside, func(name string, _ bool) bool { return strings.HasPrefix(name, prefix) })
	if len(outside) == 0 {
		return nil
	}
	there, err := present(outside)
	if err != nil {
		return fmt.Errorf("find out whether an agent with another prefix enforces policy here: %w", err)
	}
	if len(there) == 0 {
		return nil
	}
	return OtherPrefix(prefix, "enforces", slices.Collect(maps.Keys(there)))
}

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
