//go:build linux

package traffic

import (
	"cmp"
	"slices"
	"strings"

	"github.com/margay-project/margay/bench/paired"
)

// kind is what sort of configuration a name stands for, in the order results are listed in.
type kind int

const (
	kindBare kind = iota
	kindOff
	kindOn
	kindOther
)

func kindOf(name string) kind {
	switch {
	case name == bare || name == control || name == hooks:
		return kindBare
	case strings.HasPrefix(name, "BPF, shortcut off"):
		return kindOff
	case strings.HasPrefix(name, "BPF, shortcut on"):
		return kindOn
	}
	return kindOther
}

// sortedByKind lists the configurations that were measured; within a kind in the order of their names' lengths, which
// is that of their rule counts.
func sortedByKind(s paired.Samples) []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(kindOf(a), kindOf(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	return names
}
