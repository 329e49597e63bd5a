package attach

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Whose says in words whose programs run before ours, given the numbers of their links (0: attached without one), and the directories of links of
// other instances of Margay by the names of these. All other links are other software's, and those that cannot be read.
func Whose(links []uint32, instances map[string][]string) string {
	owner := map[uint32]string{}
	for name, dirs := range instances {
		for _, dir := range dirs {
			list, _ := ListPinned(dir)
			for _, a := range list {
				owner[a.Ingress.Link], owner[a.Egress.Link] = name, name
			}
		}
	}
	delete(owner, 0)
	named, others := map[string]bool{}, len(links) == 0
	for _, id := range links {
		name, known := owner[id]
		if others = others || !known; known {
			named[fmt.Sprintf("another instance of Margay (%q)", name)] = true
		}
	}
	words := slices.Sorted(maps.Keys(named))
	if others {
		words = append(words, "other software")
	}
	return strings.Join(words, " and ")
}
