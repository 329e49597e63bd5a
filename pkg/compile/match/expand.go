package match

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// ErrTooManyRules is the cause of Expand's failure when a policy needs more entries than an ordered match table holds.
var ErrTooManyRules = errors.New("too many rules")

// ErrOverLimit says that a policy is within the format's limits, but over the limits that protect the resources of other
// endpoints and namespaces.
var ErrOverLimit = errors.New("over the limit")

// MaxEntries is the most entries of an ordered match table: positions are u16, and NoRule is none of them.
const MaxEntries = 0xffff

// Expand flattens the policy of one direction into its ordered match table. The address predicates of the local side are
// decided by local and vanish; sets and rules get their numbers from num, which is called only for those in the Program, in
// its order. Rules that cannot match this endpoint's traffic are left out: rules marked Unmatchable, and rules for families
// the endpoint has no address of.
//
// The error is ErrTooManyRules or, for a policy with Refused, ErrOverLimit, wrapped.
func Expand(p *model.DirectionPolicy, local Local, num Numbers) (*Program, error) {
	x := NewExpander(p, local, num)
	x.Run(p)
	return x.Result(p)
}

// NewExpander returns an Expander that has expanded nothing yet; see Expand.
func NewExpander(p *model.DirectionPolicy, local Local, num Numbers) *Expander {
	x := &Expander{
		direction: p.Direction,
		shadow:    p.Shadow,
		local:     local,
		num:       num,
		prog:      &Program{Shadow: p.Shadow, NetSets: map[model.SetID][]netip.Prefix{}},
		numbers:   map[model.SetID]uint32{},
		single:    map[netip.Prefix]*netSet{},
	}
	for _, f := range []family{{4, bpf.RuleV4}, {6, bpf.RuleV6}} {
		if addr, ok := local.Addr(f.version); ok {
			x.own = append(x.own, ownAddr{f, addr})
		}
	}
	size := EntriesOf(p)
	x.prog.Rules, x.prog.IDs = make([]bpf.Rule, 0, size), make([]model.RuleID, 0, size)
	return x
}

// Run goes through the whole policy, or until Pause returns false.
func (x *Expander) Run(p *model.DirectionPolicy) {
	if refused(p) != nil {
		return
	}
	for i := range p.Tiers {
		x.tier(&p.Tiers[i])
	}
	for _, profile := range p.Profiles {
		start := len(x.prog.Rules)
		x.rules("", profile)
		x.landPasses(start)
	}
	last := model.RuleID{Point: model.AtNoProfile, Direction: p.Direction}
	x.add(x.credited(last, p.Credit, model.Deny), bpf.Rule{Action: bpf.RuleDeny, Flags: bothFamilies | bpf.RuleEnd})
}

// Result returns the Program, once Run has gone through the whole policy.
func (x *Expander) Result(p *model.DirectionPolicy) (*Program, error) {
	if err := refused(p); err != nil {
		return nil, err
	}
	if x.full {
		return nil, fmt.Errorf("expand %s policy of %d tiers and %d profiles: %w: more than %d entries of the match table",
			p.Direction, len(p.Tiers), len(p.Profiles), ErrTooManyRules, MaxEntries)
	}
	return x.prog, nil
}

// refused is why a policy cannot be expanded, because rules of it have not been worked out; nil: it can.
func refused(p *model.DirectionPolicy) error {
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			if policy.Refused != "" && !policy.Staged {
				return fmt.Errorf("%s policy %s: %w: %s", p.Direction, policy.Key, ErrOverLimit, policy.Refused)
			}
		}
	}
	for _, profile := range p.Profiles {
		if profile.Refused != "" {
			return fmt.Errorf("%s rules of profile %s: %w: %s", p.Direction, profile.Key.Name, ErrOverLimit, profile.Refused)
		}
	}
	return nil
}

// EntriesOf guesses how many entries a policy needs: one a rule, one a tier, and the last.
func EntriesOf(p *model.DirectionPolicy) int {
	n := len(p.Tiers) + 1
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			n += len(policy.Rules)
		}
	}
	for _, profile := range p.Profiles {
		n += len(profile.Rules)
	}
	return min(n, MaxEntries)
}

// family is an IP version and the flag of entries that match it.
type family struct {
	version uint8
	flag    uint8
}

// ownAddr is the endpoint's own address of a family.
type ownAddr struct {
	family
	addr netip.Addr
}

// Expander builds one Program. Expand is all of its steps at once.
type Expander struct {
	direction model.Direction
	shadow    bool // see model.DirectionPolicy.Shadow
	local     Local
	own       []ownAddr // of the families the endpoint has
	num       Numbers
	prog      *Program
	numbers   map[model.SetID]uint32   // the keys are prog.Sets
	single    map[netip.Prefix]*netSet // lists of one prefix, which rules repeat most
	full      bool                     // more than MaxEntries were added; the Program is void
	scratch   scratch

	Pause   func() bool // called when Left is used up; false: the Program is not wanted any more. Nil: there is no end to Left
	Left    int         // rules to be expanded before it is
	Stopped bool        // it said so
}

func (x *Expander) tier(t *model.TierPolicy) {
	start := len(x.prog.Rules)
	var first *model.PolicyRules
	for _, policy := range t.Policies {
		if policy.Staged {
			continue
		}
		if first == nil {
			first = policy
		}
		x.rules(t.Name, policy)
	}
	if first == nil {
		return
	}
	end := bpf.Rule{Action: bpf.RuleDeny, Flags: bothFamilies | bpf.RuleEnd}
	if t.Default == model.Pass {
		end.Action = bpf.RulePass
	}
	x.add(x.credited(model.RuleID{Point: model.AtEndOfTier, Direction: x.direction, Tier: t.Name, Policy: first.Key}, t.Credit, t.Default), end)
	x.landPasses(start)
}

// landPasses makes every Pass entry from start on go to the next entry to be added.
func (x *Expander) landPasses(start int) {
	for i := start; i < len(x.prog.Rules); i++ {
		if x.prog.Rules[i].Action == bpf.RulePass {
			x.prog.Rules[i].Jump = uint16(len(x.prog.Rules))
		}
	}
}

func (x *Expander) rules(tier string, p *model.PolicyRules) {
	for i := range p.Rules {
		if x.Stopped = x.Stopped || x.Pause != nil && x.Left <= 0 && !x.Pause(); x.Stopped {
			return
		}
		x.Left--
		rule := &p.Rules[i]
		x.rule(x.credited(model.RuleID{
			Point: model.AtRule, Direction: x.direction, Tier: tier, Policy: p.Key, Index: rule.Index,
		}, p.Credit, rule.Action), rule)
	}
}

// credited is the rule itself or, in a shadow, the staged policy or rule that its verdicts are due to.
func (x *Expander) credited(id model.RuleID, c *model.Credit, action model.Action) model.RuleID {
	switch {
	case c == nil:
		return id
	case c.Policy == id.Policy:
		id.Staged = true
		return id
	}
	behind := model.RuleID{Point: model.AtBehind, Direction: x.direction, Tier: c.Tier, Policy: c.Policy, Staged: true}
	if action == model.Allow {
		behind.Index = 1
	}
	return behind
}

// add appends one entry; every entry but a RULE_SKIP gets the rule's number. In a shadow those have none whose verdicts are
// the enforced policy's: nothing is counted for them.
func (x *Expander) add(id model.RuleID, entry bpf.Rule) {
	if len(x.prog.Rules) == MaxEntries {
		x.full = true
	}
	if x.full {
		return
	}
	if entry.Action != bpf.RuleSkip && (!x.shadow || id.Staged) {
		entry.Id = x.num.Rule(id)
	}
	x.prog.Rules = append(x.prog.Rules, entry)
	x.prog.IDs = append(x.prog.IDs, id)
}

// set notes that the Program refers to a set and returns its number.
func (x *Expander) set(id model.SetID) uint32 {
	number, ok := x.numbers[id]
	if !ok {
		number = x.num.Set(id)
		x.numbers[id] = number
		x.prog.Sets = append(x.prog.Sets, id)
	}
	return number
}
