package verify

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Atoms number the operands that rules compare addresses with: sets, and the prefixes of CIDR lists. Not safe for concurrent use.
type Atoms struct {
	sets map[model.SetID]uint32
	nets map[netip.Prefix]uint32
	next uint32
}

// NewAtoms returns the atoms of no policy.
func NewAtoms() *Atoms {
	return &Atoms{sets: map[model.SetID]uint32{}, nets: map[netip.Prefix]uint32{}}
}

// AddPolicy adds the operands in the rules of a policy.
func (a *Atoms) AddPolicy(p *model.DirectionPolicy) {
	eachRule(p, func(r *model.MatchRule) {
		for _, s := range []*model.Side{&r.Source, &r.Destination} {
			a.addSide(s)
		}
	})
}

// AddSet adds a set.
func (a *Atoms) AddSet(id model.SetID) {
	if _, ok := a.sets[id]; !ok {
		a.sets[id] = a.next
		a.next++
	}
}

func (a *Atoms) addSide(s *model.Side) {
	for _, id := range slices.Concat(s.In, s.NotIn) {
		a.AddSet(id)
	}
	for _, m := range []*model.PortMatch{s.Ports, s.NotPorts} {
		if m != nil {
			for _, n := range m.Named {
				a.AddSet(n.Set)
			}
		}
	}
	for _, n := range slices.Concat(s.Nets, s.NotNets) {
		if _, ok := a.nets[n]; !ok {
			a.nets[n] = a.next
			a.next++
		}
	}
}

// Sets returns the sets among the atoms, in no particular order.
func (a *Atoms) Sets() []model.SetID {
	ids := make([]model.SetID, 0, len(a.sets))
	for id := range a.sets {
		ids = append(ids, id)
	}
	return ids
}

// Nets returns the CIDRs in the rules of a policy, in no particular order.
func Nets(p *model.DirectionPolicy) []netip.Prefix {
	a := NewAtoms()
	a.AddPolicy(p)
	nets := make([]netip.Prefix, 0, len(a.nets))
	for n := range a.nets {
		nets = append(nets, n)
	}
	return nets
}

// eachRule calls do with every rule of the policies and profiles that are enforced.
func eachRule(p *model.DirectionPolicy, do func(*model.MatchRule)) {
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			if !policy.Staged {
				for i := range policy.Rules {
					do(&policy.Rules[i])
				}
			}
		}
	}
	for _, profile := range p.Profiles {
		for i := range profile.Rules {
			do(&profile.Rules[i])
		}
	}
}
