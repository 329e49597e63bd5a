package match

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// clause is what a rule says of addresses, once the local side is folded: the packet's family and its remote address.
type clause struct {
	families  uint8 // RULE_V4, RULE_V6
	in, notIn []model.SetID
	nets      []*netSet // definitions of those of in and notIn that stand for CIDR lists
}

// scratch is memory that each rule uses again.
type scratch struct {
	in, notIn []model.SetID
	nets      []*netSet
	options   []l4Option
	matches   [2][]l4Match // in turns
	turn      int
}

// rule appends the entries of one rule: those that make packets skip it, then one for each alternative.
func (x *Expander) rule(id model.RuleID, r *model.MatchRule) {
	if r.Unmatchable != "" || x.full {
		return
	}
	addrs, ok := x.addresses(r)
	if !ok {
		return
	}
	matches, skips := x.l4(r, addrs.families)
	if len(matches) == 0 {
		return
	}
	for _, n := range addrs.nets {
		if !n.defined {
			n.defined = true
			x.prog.NetSets[n.id] = n.nets
		}
	}

	// An entry has room for three sets of each kind. The named-port set of a match goes into the entry itself.
	room := len(bpf.Rule{}.In)
	if slices.ContainsFunc(matches, func(m l4Match) bool { return len(m.sets) > 0 }) {
		room--
	}
	start := len(x.prog.Rules)
	in, moreIn := split(addrs.in, room)
	notIn, moreNotIn := split(addrs.notIn, len(bpf.Rule{}.NotIn))
	skip := bpf.Rule{Action: bpf.RuleSkip, Flags: addrs.families}
	for _, s := range moreIn {
		e := skip
		e.NotIn[0] = x.set(s)
		x.add(id, e)
	}
	for _, s := range moreNotIn {
		e := skip
		e.In[0] = x.set(s)
		x.add(id, e)
	}
	for _, s := range skips {
		x.skip(id, s)
	}
	x.entries(id, r, matches, in, notIn)
	for i := start; i < len(x.prog.Rules); i++ {
		if x.prog.Rules[i].Action == bpf.RuleSkip {
			x.prog.Rules[i].Jump = uint16(len(x.prog.Rules))
		}
	}
}

// skip appends the entries by which packets of a negated port list pass over the rule.
func (x *Expander) skip(id model.RuleID, s sideOption) {
	m := l4Match{proto: int(s.proto), notProto: -1, families: s.families}
	*m.ports(s.side) = s.ranges
	if s.ranges[0] == everyPort {
		*m.ports(s.side) = nil
	}
	if s.set != "" {
		m.sets = []model.SetID{s.set}
	}
	x.match(id, bpf.RuleSkip, &m, nil, nil)
}

// entries appends the entries of all alternatives. A packet may fit several of them when named ports are in play; so
// that it is logged once, those of a Log rule then make it skip the rest.
func (x *Expander) entries(id model.RuleID, r *model.MatchRule, matches []l4Match, in, notIn []model.SetID) {
	action := ruleAction(r.Action)
	once := action == bpf.RuleLog && len(matches) > 1 && namesPorts(r)
	for i := range matches {
		m := &matches[i]
		x.match(id, action, m, in, notIn)
		if once && i < len(matches)-1 {
			x.match(id, bpf.RuleSkip, m, in, notIn)
		}
	}
}

// match appends one alternative, in as many entries as its ranges need.
func (x *Expander) match(id model.RuleID, action uint8, m *l4Match, in, notIn []model.SetID) {
	e := bpf.Rule{Action: action, Flags: m.families}
	switch {
	case m.proto >= 0:
		e.Flags |= bpf.RuleProto
		e.Proto = uint8(m.proto)
	case m.notProto >= 0:
		e.Flags |= bpf.RuleNotProto
		e.Proto = uint8(m.notProto)
	}
	n := 0
	for _, s := range in {
		e.In[n] = x.set(s)
		n++
	}
	for _, s := range m.sets {
		if number := x.set(s); !slices.Contains(e.In[:n], number) {
			e.In[n] = number
			n++
		}
	}
	for i, s := range notIn {
		e.NotIn[i] = x.set(s)
	}
	// An empty list, which matches any port, is one chunk too.
	for d := 0; d == 0 || d < len(m.dport); d += len(e.Dport) {
		for s := 0; s == 0 || s < len(m.sport); s += len(e.Sport) {
			f := e
			for _, r := range m.dport[d:min(d+len(e.Dport), len(m.dport))] {
				f.Dport[f.Ndports].Lo, f.Dport[f.Ndports].Hi = r.Lo, r.Hi
				f.Ndports++
			}
			for _, r := range m.sport[s:min(s+len(e.Sport), len(m.sport))] {
				f.Sport[f.Nsports].Lo, f.Sport[f.Nsports].Hi = r.Lo, r.Hi
				f.Nsports++
			}
			if x.add(id, f); x.full {
				return
			}
		}
	}
}

// split cuts a list after n.
func split(sets []model.SetID, n int) (head, tail []model.SetID) {
	n = min(n, len(sets))
	return sets[:n], sets[n:]
}

func namesPorts(r *model.MatchRule) bool {
	named := func(s *model.Side) bool { return s.Ports != nil && len(s.Ports.Named) > 0 }
	return named(&r.Source) || named(&r.Destination)
}

// ruleAction is the entry's action for a rule's. An action the model does not know denies.
func ruleAction(a model.Action) uint8 {
	switch a {
	case model.Allow:
		return bpf.RuleAllow
	case model.Pass:
		return bpf.RulePass
	case model.Log:
		return bpf.RuleLog
	}
	return bpf.RuleDeny
}
