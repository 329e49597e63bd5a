package match

import (
	"cmp"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// L4Key is what the tables know of a packet above IP: the protocol index and, below it, the destination port (TCP, UDP,
// SCTP), ICMP type << 8 | code (ICMP, ICMPv6), or the protocol number (all others).
func L4Key(pkt model.Packet) (index int, key uint16) {
	index = l4Index(pkt.Protocol)
	switch index {
	case bpf.L4ICMP, bpf.L4ICMPv6:
		return index, uint16(pkt.ICMPType)<<8 | uint16(pkt.ICMPCode)
	case bpf.L4Other:
		return index, uint16(pkt.Protocol)
	}
	return index, pkt.DstPort
}

// L4Protocols are the protocols with an L4 index of their own. The place in the array is that index.
var L4Protocols = [...]uint8{
	bpf.L4TCP: model.ProtoTCP, bpf.L4UDP: model.ProtoUDP, bpf.L4SCTP: model.ProtoSCTP,
	bpf.L4ICMP: model.ProtoICMP, bpf.L4ICMPv6: model.ProtoICMPv6,
}

func l4Index(proto uint8) int {
	if i := slices.Index(L4Protocols[:], proto); i >= 0 {
		return i
	}
	return bpf.L4Other
}

// portProtocols are the protocols whose ports rules can match.
var portProtocols = []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}

// bothFamilies are the flags of an entry that matches IPv4 and IPv6.
const bothFamilies = bpf.RuleV4 | bpf.RuleV6

// l4Match is one alternative of a rule's protocol and ports. All its conditions must hold.
type l4Match struct {
	proto, notProto int // -1: no such condition; at most one of them is set
	families        uint8
	dport, sport    []model.PortRange // normalized; nil: any. Only with proto
	sets            []model.SetID     // the remote address must be in these as well
}

// admits reports whether packets of the protocol can satisfy m.
func (m *l4Match) admits(proto uint8) bool {
	return (m.proto < 0 || m.proto == int(proto)) && m.notProto != int(proto)
}

// ports is the side's port condition of m.
func (m *l4Match) ports(side l4Side) *[]model.PortRange {
	if side == sourceSide {
		return &m.sport
	}
	return &m.dport
}

// l4Side says whose ports are meant. ICMP types are kept where destination ports are.
type l4Side uint8

const (
	destinationSide l4Side = iota
	sourceSide
)

// l4Option is one alternative of a port list: packets of the protocol and families whose port is in ranges and, unless
// set is empty, whose remote address is in it.
type l4Option struct {
	proto, families uint8
	ranges          []model.PortRange // normalized
	set             model.SetID
}

// mergeOptions sorts options in place, joins those that differ only in their ranges, and drops those that match nothing.
// The ranges of every option must be normalized.
func mergeOptions(options []l4Option) []l4Option {
	options = slices.DeleteFunc(options, func(o l4Option) bool { return o.families == 0 || len(o.ranges) == 0 })
	slices.SortStableFunc(options, func(a, b l4Option) int {
		return cmp.Or(cmp.Compare(a.proto, b.proto), cmp.Compare(a.families, b.families), cmp.Compare(a.set, b.set))
	})
	out := options[:0]
	for len(options) > 0 {
		o, n := options[0], 1
		for n < len(options) && options[n].proto == o.proto && options[n].families == o.families && options[n].set == o.set {
			n++
		}
		if n > 1 {
			var all []model.PortRange
			for _, same := range options[:n] {
				all = append(all, same.ranges...)
			}
			o.ranges = normalize(all)
		}
		out = append(out, o)
		options = options[n:]
	}
	return out
}

// icmpOptions are the packets an ICMP match fits: ICMP on IPv4, ICMPv6 on IPv6.
func icmpOptions(m *model.ICMPMatch) []l4Option {
	keys := model.PortRange{Lo: uint16(m.Type) << 8, Hi: uint16(m.Type)<<8 | 0xff}
	if m.Code != nil {
		keys.Lo |= uint16(*m.Code)
		keys.Hi = keys.Lo
	}
	return []l4Option{
		{proto: model.ProtoICMP, families: bpf.RuleV4, ranges: []model.PortRange{keys}},
		{proto: model.ProtoICMPv6, families: bpf.RuleV6, ranges: []model.PortRange{keys}},
	}
}

// start returns a list of one match, in memory that is valid until the second call of require from now.
func (s *scratch) start(m l4Match) []l4Match {
	out := append(s.next(), m)
	s.matches[s.turn] = out
	return out
}

// next is memory for matches. It is valid until the call after the next.
func (s *scratch) next() []l4Match {
	s.turn ^= 1
	return s.matches[s.turn][:0]
}

// require keeps the part of every match that also fits one of the options on that side.
func (s *scratch) require(matches []l4Match, side l4Side, options []l4Option) []l4Match {
	out := s.next()
	for i := range matches {
		for _, o := range options {
			m := matches[i]
			if m.families &= o.families; m.families == 0 || !m.admits(o.proto) {
				continue
			}
			m.proto, m.notProto = int(o.proto), -1
			if o.set != "" && !slices.Contains(m.sets, o.set) {
				m.sets = append(slices.Clone(m.sets), o.set)
			}
			if m.narrow(side, o.ranges) {
				out = append(out, m)
			}
		}
	}
	s.matches[s.turn] = out
	return out
}

// exclude removes the part that fits one of the options on that side from every match. Options that cannot be expressed
// by narrower ranges are returned: packets that fit them must skip the rule.
func exclude(matches []l4Match, side l4Side, options []l4Option) (left []l4Match, skips []l4Option) {
	left = matches
	for _, o := range options {
		skip := false
		var kept []l4Match
		for _, m := range left {
			switch {
			case !m.admits(o.proto) || m.families&o.families == 0: // cannot fit the option
			case o.set != "" || m.proto < 0 || m.families&^o.families != 0:
				skip = true
			case !m.narrow(side, complement(o.ranges)):
				continue
			}
			kept = append(kept, m)
		}
		left = kept
		if skip {
			skips = append(skips, o)
		}
	}
	return left, skips
}

// narrow restricts the ports of a side to ranges and reports whether anything is left.
func (m *l4Match) narrow(side l4Side, ranges []model.PortRange) bool {
	ports := m.ports(side)
	if *ports != nil {
		ranges = intersect(*ports, ranges)
	}
	if len(ranges) == 0 {
		return false
	}
	if len(ranges) == 1 && ranges[0] == everyPort {
		ranges = nil
	}
	*ports = ranges
	return true
}
