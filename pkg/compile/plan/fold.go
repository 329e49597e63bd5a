package plan

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// fold is the policy of one direction and its programs: one for each group of endpoints whose own addresses it
// distinguishes.
type fold struct {
	policy   *model.DirectionPolicy
	rules    int // how many entries it needs, about
	users    int
	nets     []netip.Prefix // its rules compare the endpoint's own address with these
	variants []*variant
}

// variant is a fold for endpoints with the same answers. Without program and err, there was no room for the program.
type variant struct {
	has      [2]bool // IPv4, IPv6
	inside   []bool  // by index in fold.nets
	answers  map[question]bool
	making   *expansion // nil: none has begun, or it has been used
	program  *program
	cost     Cost
	err      error
	patience uint64 // changes of its sets before it is tried again: see crowd
}

// localNets returns the prefixes that rules compare the endpoint's own address with.
func localNets(p *model.DirectionPolicy) []netip.Prefix {
	var all []netip.Prefix
	add := func(policies []*model.PolicyRules) {
		for _, policy := range policies {
			for i := range policy.Rules {
				side := &policy.Rules[i].Destination
				if p.Direction == model.Egress {
					side = &policy.Rules[i].Source
				}
				all = append(append(all, side.Nets...), side.NotNets...)
			}
		}
	}
	for i := range p.Tiers {
		add(p.Tiers[i].Policies)
	}
	add(p.Profiles)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// variant returns the variant for an endpoint with these addresses, a new one if there is none.
func (f *fold) variant(l *localAddrs) *variant {
	f.variants = slices.DeleteFunc(f.variants, func(v *variant) bool { return v.program != nil && v.program.gone })
	for _, v := range f.variants {
		if v.fits(f, l) {
			return v
		}
	}
	v := &variant{answers: map[question]bool{}, inside: make([]bool, len(f.nets))}
	for t, a := range l.addrs {
		v.has[t] = a.IsValid()
	}
	for i, p := range f.nets {
		v.inside[i] = l.inside(p)
	}
	f.variants = append(f.variants, v)
	return v
}

func (v *variant) fits(f *fold, l *localAddrs) bool {
	for t, a := range l.addrs {
		if a.IsValid() != v.has[t] {
			return false
		}
	}
	for i, p := range f.nets {
		if l.inside(p) != v.inside[i] {
			return false
		}
	}
	for q, in := range v.answers {
		if l.in(q) != in {
			return false
		}
	}
	return true
}
