package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// past is what does not all count of one side of a rule: in, where the rule matches what is in a set, and notIn, where it matches what is not.
type past struct{ in, notIn []pastSet }

func (p past) isEmpty() bool { return len(p.in)+len(p.notIn) == 0 }

// pastSet is the addresses that declare a port under a name, with numbers of a protocol that do not count; or backends of a
// Service that do not count; or what covers network sets that do not count.
type pastSet struct {
	protocol uint8
	id       model.SetID
	other    model.SetID // a set of a side that this one stands for; empty: none
	anyPort  bool        // it stands for the ports of its side, too
}

// past are the sets of a definition that stand for numbers past the limit; of nil, none.
func (d *definition) past() []pastSet {
	if d == nil {
		return nil
	}
	var all []pastSet
	var other model.SetID
	if s := d.sets[portKey{}]; s != nil {
		other = s.id
	}
	for _, k := range d.ports {
		if k.past {
			all = append(all, pastSet{k.protocol, d.sets[k].id, other, d.key.kind != kindSelector})
		}
	}
	return all
}

// pastOf are those of a definition that a rule with the protocol may match; nil: with any.
func pastOf(d *definition, protocol *uint8) []pastSet {
	all := d.past()
	if protocol == nil {
		return all
	}
	return slices.DeleteFunc(all, func(s pastSet) bool { return s.protocol != *protocol })
}

// withPast appends the meaning of a rule with named ports whose numbers, a Service whose backends, or selectors whose network sets do not
// all count: the rule fails closed. On pods that declare uncounted numbers, on such backends, and on what covers such network sets, an Allow,
// Pass or Log matches less than it says. A Deny matches all ports of these pods and backends, and all that covers these network sets, and a
// Pass denies the packets that it might have matched.
func withPast(rules []model.MatchRule, m *model.MatchRule, source, destination past) []model.MatchRule {
	narrow := *m
	if m.Action != model.Deny {
		without(&narrow.Source, source.notIn)
		without(&narrow.Destination, destination.notIn)
	}
	rules = append(rules, narrow)
	if m.Action == model.Allow || m.Action == model.Log {
		return rules
	}
	isPass := m.Action == model.Pass
	for i, s := range source.sides(m.Source, isPass) {
		for j, d := range destination.sides(m.Destination, isPass) {
			protocol := max(s.protocol, d.protocol)
			if i+j == 0 || s.protocol != 0 && d.protocol != 0 && s.protocol != d.protocol {
				continue
			}
			wide := *m
			wide.Action, wide.Source, wide.Destination = model.Deny, s.Side, d.Side
			if protocol != 0 {
				wide.Protocol = &protocol
			}
			rules = append(rules, wide)
		}
	}
	return rules
}

func without(s *model.Side, sets []pastSet) {
	if len(sets) == 0 {
		return
	}
	s.NotIn = slices.Clone(s.NotIn)
	for _, p := range sets {
		s.NotIn = append(s.NotIn, p.id)
	}
}

// pastSide is a side for the pods of one set, and packets of the protocol only. 0: of any.
type pastSide struct {
	model.Side
	protocol uint8
}

// sides returns the side as it is, and one for each set of which the rule may say more.
func (p past) sides(s model.Side, isPass bool) []pastSide {
	all := []pastSide{{Side: s}}
	for _, set := range p.in {
		of := s
		in := slices.DeleteFunc(slices.Clone(s.In), func(id model.SetID) bool { return id == set.other })
		if of.In = append(in, set.id); set.anyPort {
			of.Ports = nil
		}
		all = append(all, pastSide{of, set.protocol})
	}
	if !isPass {
		return all
	}
	for _, set := range p.notIn {
		of := s
		of.In = append(slices.Clone(s.In), set.id)
		all = append(all, pastSide{of, 0})
	}
	return all
}
