package iptables

import (
	"maps"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// names are the names of the sets and rules that the kernel knows by number, for commands and records. The kernel does not store
// them.
type names struct {
	sets  map[uint32]model.SetID
	rules map[uint32]model.RuleID
}

func newNames() *names {
	return &names{sets: map[uint32]model.SetID{}, rules: map[uint32]model.RuleID{}}
}

func (n *names) add(p plan.Plan) {
	maps.Copy(n.sets, p.SetNames)
	maps.Copy(n.rules, p.RuleNames)
}

func (n *names) drop(p plan.Plan) {
	for _, number := range p.DropSets {
		delete(n.sets, number)
	}
	for _, number := range p.DropRules {
		delete(n.rules, number)
	}
}
