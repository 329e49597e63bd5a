package ruleset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// UnknownChainError reports that a rule goes to a chain that does not exist.
type UnknownChainError struct{ From, To string }

func (e *UnknownChainError) Error() string {
	return fmt.Sprintf("chain %s goes to %s, which does not exist", e.From, e.To)
}

// LoopError reports that chains go to each other in a loop. The kernel refuses a loop that is reachable from a built-in chain,
// whatever the rules on the way match.
type LoopError struct{ Path []string }

func (e *LoopError) Error() string { return "chains in a loop: " + strings.Join(e.Path, " -> ") }

// DepthError reports that chains are nested deeper than the kernel allows.
type DepthError struct {
	Limit int
	Path  []string // from the built-in chain on
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("%d chains deep, and %d are possible: %s", len(e.Path)-1, e.Limit, strings.Join(e.Path, " -> "))
}

// Graph records which chains go to which others, by -j or -g. The zero value is empty. Not safe for concurrent use.
type Graph struct {
	edges map[string][]string // of each chain, in the order of its rules, each once
}

// Set adds or replaces a chain. changed: it goes to other chains than before.
func (g *Graph) Set(c Chain) (changed bool) {
	if g.edges == nil {
		g.edges = map[string][]string{}
	}
	before, known := g.edges[c.Name]
	after := goesTo(c.Rules)
	g.edges[c.Name] = after
	return !known || !slices.Equal(before, after)
}

// Remove removes the chain.
func (g *Graph) Remove(name string) { delete(g.edges, name) }

// goesTo returns the chains that rules go to. A name in capitals is a target: all targets of iptables are in capitals.
func goesTo(rules []string) (chains []string) {
	for _, rule := range rules {
		name, isGoto := Target(rule)
		if name != "" && (isGoto || name != strings.ToUpper(name)) && !slices.Contains(chains, name) {
			chains = append(chains, name)
		}
	}
	return chains
}

// Check checks all chains. entries are the built-in chains, by which packets enter; limit is the greatest depth of nested chains, 0
// for any. The error is an *UnknownChainError, a *LoopError or a *DepthError.
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
	heights map[string]int // of the chains that are done; -1: the walk is inside the chain
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

// longest returns a path from name as long as its height.
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
