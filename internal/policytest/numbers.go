package policytest

import (
	"github.com/margay-project/margay/pkg/model"
)

// Numbers is a match.Numbers that hands out numbers in order of first use.
type Numbers struct {
	Sets  map[model.SetID]uint32
	Rules map[model.RuleID]uint32
}

// NewNumbers returns one that has given no number yet.
func NewNumbers() *Numbers {
	return &Numbers{Sets: map[model.SetID]uint32{}, Rules: map[model.RuleID]uint32{}}
}

// Set implements match.Numbers.
func (n *Numbers) Set(id model.SetID) uint32 { return number(n.Sets, id) }

// Rule implements match.Numbers.
func (n *Numbers) Rule(id model.RuleID) uint32 { return number(n.Rules, id) }

func number[K comparable](m map[K]uint32, id K) uint32 {
	if _, ok := m[id]; !ok {
		m[id] = uint32(len(m) + 1)
	}
	return m[id]
}
