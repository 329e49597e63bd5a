package chains

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
)

// Chain is one chain: its name, its rules as they follow "-A NAME ", and the decision of each.
type Chain struct {
	Name    string
	Rules   []string
	Decides []Decision // parallel to Rules
}

// Decision names the rule of policy that decides the packets which match a rule of a chain. So the kernel's counters of rules of
// chains are counters of rules of policy.
type Decision struct {
	Action uint8  // bpf.RuleAllow or bpf.RuleDeny; 0: the rule decides nothing
	Entry  uint16 // in the table's match table, the first of the same rule of policy; match.NoRule: none
	ID     uint32 // number of the rule of policy, as in bpf.Outcome; 0: not counted
}

// denied returns the decision about packets that no entry matches.
func denied() Decision { return Decision{Action: bpf.RuleDeny, Entry: match.NoRule} }

// line is one rule before it is text: its match, its target, and its decision.
type line struct {
	match   string
	verdict string
	only    sides // the packets that it applies to
	decides Decision
}

// sides distinguishes packets by their direction in the flow.
type sides uint8

const (
	bothWays sides = iota
	along          // as their flow was opened
	against        // answers
)

// match returns the match of a mark, with the flag for the direction if a line applies to one side only; empty: it would match
// every mark.
func (m Marks) match(value, mask uint32, only sides) string {
	if only != bothWays {
		mask |= m.against()
	}
	if only == against {
		value |= m.against()
	}
	if mask == 0 {
		return ""
	}
	return fmt.Sprintf("-m mark --mark %#x/%#x", value, mask)
}

// both joins two texts that may be empty.
func both(a, b string) string {
	switch {
	case a == "":
		return b
	case b == "":
		return a
	}
	return a + " " + b
}

func (m Marks) made(name string, lines []line) Chain {
	c := Chain{Name: name, Rules: make([]string, len(lines)), Decides: make([]Decision, len(lines))}
	for i, l := range lines {
		c.Rules[i], c.Decides[i] = both(both(l.match, m.match(0, 0, l.only)), l.verdict), l.decides
	}
	return c
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
