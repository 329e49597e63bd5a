package chains

import (
	"fmt"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
)

// Chain is one chain: its name, its rules as they follow "-A NAME ", and what each of them decides.
type Chain struct {
	Name    string
	Rules   []string
	Decides []Decision // parallel to Rules
}

// Decision is what packets that match a rule of a chain are decided by. So the packets that the kernel has counted at rules
// of chains are those of rules of policy.
type Decision struct {
	Action uint8  // bpf.RuleAllow or bpf.RuleDeny; 0: the rule decides nothing
	Entry  uint16 // in the table's match table, the first of the same rule of policy; match.NoRule: none
	ID     uint32 // number of the rule of policy, as in bpf.Outcome; 0: not counted
}

// denied is the decision about packets that no entry is about.
func denied() Decision { return Decision{Action: bpf.RuleDeny, Entry: match.NoRule} }

// line is one rule before it is text: what it matches, where packets go then, and what that decides.
type line struct {
	match   string
	verdict string
	only    sides // packets that it is for
	decides Decision
}

// sides are packets by the way that they go.
type sides uint8

const (
	bothWays sides = iota
	along          // as their flow was opened
	against        // answers
)

// match is the match of a mark, with what lines that are for one side demand of it besides; nothing if that is nothing.
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
