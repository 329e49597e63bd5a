package calc

import (
	"encoding/binary"
	mathbits "math/bits"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// evaluation is the order in which the policies are evaluated that apply on this node. It is sorted once for all endpoints, most of
// it already is, and each endpoint's policies are read from it: a tenant may have 10,000 that apply to each of 100 pods, and change
// one of them all the time.
type evaluation struct {
	ordered []*policy
	stands  []*policy // by place in ordered: the staged policy that stands for that one; nil: there is none
	came    []*policy // not in ordered yet
	stale   bool      // policies or tiers have changed

	marks   []uint64  // the places of the policies of the group in hand
	list    []*policy // the same in order
	scratch []byte    // of keyOf
}

// reorder brings the order up to date. of finds a policy.
func (e *evaluation) reorder(t tiers, of func(model.PolicyKey) *policy) {
	if !e.stale {
		return
	}
	e.ordered = append(slices.DeleteFunc(e.ordered, func(p *policy) bool { return p.active == nil }), e.came...)
	slices.SortFunc(e.ordered, func(a, b *policy) int {
		if c := t.compare(a.tier, b.tier); c != 0 {
			return c
		}
		return comparePolicies(a, b)
	})
	e.stands = slices.Grow(e.stands[:0], len(e.ordered))[:len(e.ordered)]
	for i, p := range e.ordered {
		p.active.place, e.stands[i] = i, nil
		if key, ok := p.key.Staging(); ok && !p.staged {
			e.stands[i] = of(key)
		}
	}
	e.came, e.stale = nil, false
	e.marks = make([]uint64, (len(e.ordered)+63)/64)
}

// turnTo finds the policies that apply to a group of the local index.
func (e *evaluation) turnTo(gr *localGroup) {
	clear(e.marks)
	for s := range gr.Selections() {
		for p := range s.Use.policies() {
			e.marks[p.active.place/64] |= 1 << (p.active.place % 64)
		}
	}
	e.list = e.list[:0]
	for i, word := range e.marks {
		for ; word != 0; word &= word - 1 {
			e.list = append(e.list, e.ordered[i*64+mathbits.TrailingZeros64(word)])
		}
	}
}

// selects reports whether a policy is among those of the group in hand.
func (e *evaluation) selects(p *policy) bool {
	return p.active != nil && e.marks[p.active.place/64]&(1<<(p.active.place%64)) != 0
}

// keyOf is equal for policies of a group in hand that are equal, and n is how many lists of rules their tiers have. The key is good until
// the next call.
func (e *evaluation) keyOf(t tiers, profiles []*ruleset, d model.Direction) (key []byte, n int) {
	key = append(e.scratch[:0], byte(d))
	tier, first := "", true
	for _, p := range e.list {
		rs := p.active.ruleset(d)
		if rs == nil {
			continue
		}
		if first || p.tier != tier {
			key = append(key, 't', byte(t.defaultAction(p.tier)))
			key = binary.AppendUvarint(key, uint64(len(p.tier)))
			key = append(key, p.tier...)
			tier, first = p.tier, false
		}
		key = binary.AppendUvarint(append(key, 'p'), rs.serial)
		if n++; e.deletion(p, d) != nil {
			key = append(key, 'd')
			n++
		}
	}
	for _, rs := range profiles {
		key = binary.AppendUvarint(append(key, 'r'), rs.serial)
	}
	e.scratch = key
	return key, n
}

// policyOf makes the policy of the group in hand for one direction, whose tiers have n lists of rules.
func (e *evaluation) policyOf(t tiers, profiles []*ruleset, d model.Direction, n int) *model.DirectionPolicy {
	dp := &model.DirectionPolicy{Direction: d}
	all := make([]*model.PolicyRules, 0, n)
	for _, p := range e.list {
		rs := p.active.ruleset(d)
		if rs == nil {
			continue
		}
		if n := len(dp.Tiers); n == 0 || dp.Tiers[n-1].Name != p.tier {
			dp.Tiers = append(dp.Tiers, model.TierPolicy{Name: p.tier, Default: t.defaultAction(p.tier)})
		}
		tier := &dp.Tiers[len(dp.Tiers)-1]
		first := len(all) - len(tier.Policies)
		all = append(all, rs.rules)
		if mark := e.deletion(p, d); mark != nil {
			all = append(all, mark)
		}
		tier.Policies = all[first:len(all):len(all)]
	}
	for _, rs := range profiles {
		dp.Profiles = append(dp.Profiles, rs.rules)
	}
	return dp
}
