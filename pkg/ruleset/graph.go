package ruleset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UnknownChainError: a rule goes to a chain that is not there.
type UnknownChainError struct{ From, To string }

func (e *UnknownChainError) Error() string {
	return fmt.Sprintf("chain %s goes to %s, which does not exist", e.From, e.To)
}

// LoopError: chains go to each other in a circle. The kernel refuses that as soon as a packet could come there, whatever the
// rules on the way match.
type LoopError struct{ Path []string }

func (e *LoopError) Error() string { return "chains in a loop: " + strings.Join(e.Path, " -> ") }

// DepthError: a packet could go through more chains, one from the other, than the kernel lets it.
type DepthError struct {
	Limit int
	Path  []string // from the built-in chain on
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("%d chains deep, and %d are possible: %s", len(e.Path)-1, e.Limit, strings.Join(e.Path, " -> "))
}

// Graph is which chains go to which others, by -j or -g. The zero value is empty.
type Graph struct {
	edges map[string][]string // of each chain, in the order of its rules, each once
}

// Set gives the chain its rules. It reports whether it goes to other chains than before.
func (g *Graph) Set(c Chain) (changed bool) {
	if g.edges == nil {
		g.edges = map[string][]string{}
	}
	before, known := g.edges[c.Name]
	after := goesTo(c.Rules)
	g.edges[c.Name] = after
	return !known || !slices.Equal(before, after)
}

// Remove forgets the chain.
func (g *Graph) Remove(name string) { delete(g.edges, name) }

// goesTo are the chains that rules name. A name in capitals is a target of iptables, as all of them are.
func goesTo(rules []string) (chains []string) {
	for _, rule := range rules {
		name, isGoto := Target(rule)
		if name != "" && (isGoto || name != strings.ToUpper(name)) && !slices.Contains(chains, name) {
			chains = append(chains, name)
		}
	}
	return chains
}

// Check looks at all chains; entries are those that packets come in by, the built-in ones, and limit is how many chains deep
// they may go, 0 for any number. The error is an *UnknownChainError, a *LoopError or a *DepthError.
func (g *Graph) Check(entries []string, limit int) error {
	w := walker{edges: g.edges, heights: make(map[string]int, len(g.edges))}
	for _, name := range slices.Sorted(maps.Keys(g.edges)) {
		if _, err := w.height(name); err != nil {
			return err
		}
	}
	for _, name := range entries {
		if limit > 0 && w.heights[name] > limit {
			return &DepthError{limit, w.longest(name)}
		}
	}
	return nil
}

// walker computes how many chains deep a packet can go from each chain.
type walker struct {
	edges   map[string][]string
	heights map[string]int // of those that are done; unfinished ones have -1
	path    []string
}

func (w *walker) height(name string) (int, error) {
	if h, seen := w.heights[name]; seen {
		if h < 0 {
			start := slices.Index(w.path, name)
			return 0, &LoopError{append(slices.Clone(w.path[start:]), name)}
		}
		return h, nil
	}
	w.heights[name] = -1
	w.path = append(w.path, name)
	height := 0
	for _, next := range w.edges[name] {
		if _, exists := w.edges[next]; !exists {
			return 0, &UnknownChainError{name, next}
		}
		h, err := w.height(next)
		if err != nil {
			return 0, err
		}
		height = max(height, h+1)
	}
	w.path = w.path[:len(w.path)-1]
	w.heights[name] = height
	return height, nil
}

// longest is a path as long as the height of name says.
func (w *walker) longest(name string) []string {
	path := []string{name}
	for w.heights[name] > 0 {
		for _, next := range w.edges[name] {
			if w.heights[next] == w.heights[name]-1 {
				name = next
				break
			}
		}
		path = append(path, name)
	}
	return path
}
