package match

import "github.com/margay-project/margay/bpf"

// Reached reports for each entry whether a packet of its IP versions can reach it. An entry after one that decides
// every packet, such as the end of a tier that denies, is never reached. Conditions other than the IP version are not
// considered: an entry that is reached may still never match.
func (p *Program) Reached() []bool {
	const both = bpf.RuleV4 | bpf.RuleV6
	arrives := make([]uint8, len(p.Rules)+1) // by entry, the IP versions that come to it; the last is the end
	if len(p.Rules) > 0 {
		arrives[0] = both
	}
	reached := make([]bool, len(p.Rules))
	for i := range p.Rules {
		r := &p.Rules[i]
		matched := arrives[i] & r.Flags & both
		reached[i] = matched != 0
		if matchesAll(r) {
			arrives[i+1] |= arrives[i] &^ matched
		} else {
			arrives[i+1] |= arrives[i]
		}
		switch r.Action {
		case bpf.RuleLog:
			arrives[i+1] |= matched
		case bpf.RulePass, bpf.RuleSkip: // they only go forward
			if to := int(r.Jump); to > i && to < len(arrives) {
				arrives[to] |= matched
			}
		}
	}
	return reached
}

// matchesAll reports whether an entry matches every packet of its IP versions.
func matchesAll(r *bpf.Rule) bool {
	return r.Flags&(bpf.RuleProto|bpf.RuleNotProto) == 0 && r.Ndports == 0 && r.Nsports == 0 && r.In == [3]uint32{} && r.NotIn == [3]uint32{}
}
