package verify

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Between compares the policies of endpoints before and after a change of the objects. One packet stands for all that no rule of either
// policy tells apart, so that no other packet's verdict changes than those found. The sets of both policies are among the atoms; a set
// with other members after the change has two ids (Renamed).
type Between struct {
	Atoms *Atoms
	Pairs []*Pair
	Of    func(netip.Addr) Signature // returns the signature of an endpoint's own address
	Keep  []model.SetID              // sets that tell remote addresses apart although no rule refers to them
}

// Shifts are the changes of verdicts between one address of an endpoint and one kind of remote addresses.
type Shifts struct {
	Kind Signature // of the remote addresses, as Kinds returns it
	Some []netip.Addr
	List []Shift
}

// Shift is a range of ports for which a verdict changes.
type Shift struct {
	Axis    Axis
	Lo, Hi  uint16 // of destination ports, of ICMP types and codes (type<<8 | code), or of protocol numbers
	Sources []Run  // of source ports; nil: every port
	Packet  model.Packet
	Cell
}

// Cell is a verdict before and after the change.
type Cell struct {
	Was, Becomes     bool
	WasBy, BecomesBy model.RuleID
}

// Renamed returns a copy of a policy with other names for its sets.
func Renamed(p *model.DirectionPolicy, name func(model.SetID) model.SetID) *model.DirectionPolicy {
	rules := func(list []*model.PolicyRules) []*model.PolicyRules {
		list = slices.Clone(list)
		for i, of := range list {
			renamed := *of
			renamed.Rules = slices.Clone(of.Rules)
			for j := range renamed.Rules {
				for _, s := range []*model.Side{&renamed.Rules[j].Source, &renamed.Rules[j].Destination} {
					renameSide(s, name)
				}
			}
			list[i] = &renamed
		}
		return list
	}
	renamed := *p
	renamed.Profiles, renamed.Tiers = rules(p.Profiles), slices.Clone(p.Tiers)
	for i := range renamed.Tiers {
		renamed.Tiers[i].Policies = rules(renamed.Tiers[i].Policies)
	}
	return &renamed
}

func renameSide(s *model.Side, name func(model.SetID) model.SetID) {
	ids := func(list []model.SetID) []model.SetID {
		list = slices.Clone(list)
		for i := range list {
			list[i] = name(list[i])
		}
		return list
	}
	ports := func(m *model.PortMatch) *model.PortMatch {
		if m == nil {
			return nil
		}
		renamed := model.PortMatch{Ranges: m.Ranges, Named: slices.Clone(m.Named)}
		for i := range renamed.Named {
			renamed.Named[i].Set = name(renamed.Named[i].Set)
		}
		return &renamed
	}
	s.In, s.NotIn, s.Ports, s.NotPorts = ids(s.In), ids(s.NotIn), ports(s.Ports), ports(s.NotPorts)
}

// Kinds returns a function that returns the kind of an address for two policies: the atoms of its signature that they or Keep refer to.
// Of must know the address.
func (b *Between) Kinds(before, after *model.DirectionPolicy) func(netip.Addr) Signature {
	relevant := b.relevant(before, after)
	return func(a netip.Addr) Signature { return project(b.Of(a), relevant) }
}

func (b *Between) relevant(before, after *model.DirectionPolicy) Signature {
	mine := NewAtoms()
	mine.AddPolicy(before)
	mine.AddPolicy(after)
	for _, id := range b.Keep {
		mine.AddSet(id)
	}
	return (&Comparison{Atoms: b.Atoms}).relevant(mine)
}

// Key is a signature as a key of maps.
func (s Signature) Key() string { return s.key() }

// Compare returns the changes between two policies of one direction for one address of an endpoint, by kinds of remote addresses, with the
// number of packets that were judged. The error is ErrTooMany.
func (b *Between) Compare(before, after *model.DirectionPolicy, own netip.Addr) ([]Shifts, int, error) {
	d := newDemand(before)
	second := len(d.steps)
	d.addPolicy(after)
	run := &shifting{demand: d, second: second, c: &Comparison{Atoms: b.Atoms}, relevant: b.relevant(before, after)}
	return run.all(b, own)
}

// shifting is one comparison of two policies under way.
type shifting struct {
	demand   *demand
	second   int // the first step of the policy after the change
	c        *Comparison
	relevant Signature
	axes     [Axes]axis
	was, is  verdict
	judged   int
}

// axis has the spans of destinations and sources on one axis, with their kinds.
type axis struct{ destinations, sources spans }

type spans struct {
	list  []span
	kinds []column
}

type span struct {
	lo, hi uint32
	kind   int
}

func (s *shifting) all(b *Between, own netip.Addr) ([]Shifts, int, error) {
	d, family := s.demand, Family(own)
	mine := s.c.at(own, project(b.Of(own), s.relevant))
	ownFits := d.fitting(func(r *model.MatchRule) bool { return addrFits(d.own(r), mine) })
	columns := 0
	for a := range Axes {
		s.axes[a] = d.axis(a, family, mine)
		columns += len(s.axes[a].destinations.kinds) * len(s.axes[a].sources.kinds)
	}
	var found []Shifts
	seen := map[string]bool{}
	for _, pair := range b.Pairs {
		kind := project(pair.Signature, s.relevant)
		if pair.Family != family || seen[kind.key()] {
			continue
		}
		seen[kind.key()] = true
		row := d.fitting(func(r *model.MatchRule) bool { return addrFits(d.remote(r), s.c.at(pair.Some[0], kind)) })
		for i := range row {
			row[i] &= ownFits[i]
		}
		if s.judged += columns; d.room < 0 || s.judged > mostQuestions {
			return nil, s.judged, ErrTooMany
		}
		if list := s.row(own, pair.Some[0], row, kind); len(list) > 0 {
			found = append(found, Shifts{Kind: kind, Some: pair.Some, List: list})
		}
	}
	return found, s.judged, nil
}

// axis divides one axis by the rules of all steps.
func (d *demand) axis(a Axis, family uint8, own place) axis {
	fitsTo := func(r *model.MatchRule, p *model.Packet) bool {
		return protocolFits(r, p, family) && portsFit(&r.Destination, p.Protocol, p.DstPort, d.membership(model.Egress, own))
	}
	fitsFrom := func(r *model.MatchRule, p *model.Packet) bool {
		return portsFit(&r.Source, p.Protocol, p.SrcPort, d.membership(model.Ingress, own))
	}
	if a > AxisSCTP { // without ports, so that a rule with source ports fits none
		to := d.spansOf(a, family, true, func(r *model.MatchRule, p *model.Packet) bool { return fitsTo(r, p) && fitsFrom(r, p) })
		all := d.fitting(func(*model.MatchRule) bool { return true })
		return axis{to, spans{list: []span{{}}, kinds: []column{{fits: all}}}}
	}
	return axis{d.spansOf(a, family, true, fitsTo), d.spansOf(a, family, false, fitsFrom)}
}

func (d *demand) spansOf(a Axis, family uint8, destination bool, fits func(*model.MatchRule, *model.Packet) bool) (s spans) {
	kinds := map[string]int{}
	d.spans(a, family, destination, nil, fits, func(lo, hi uint32, packet model.Packet, key string, fit set) bool {
		kind, known := kinds[key]
		if !known {
			if d.room -= 2 * len(key); d.room < 0 {
				return false
			}
			kind = len(s.kinds)
			kinds[key], s.kinds = kind, append(s.kinds, column{packet, slices.Clone(fit)})
		}
		s.list = append(s.list, span{lo, hi, kind})
		return true
	})
	return s
}

// row compares all packets between an own address and one kind of others.
func (s *shifting) row(own, remote netip.Addr, row set, kind Signature) (list []Shift) {
	there := s.c.at(remote, kind)
	for a := range Axes {
		destinations, sources := s.axes[a].destinations, s.axes[a].sources
		of := make([][]Shift, len(destinations.kinds)) // by kind, without ranges of destinations
		for i := range destinations.kinds {
			of[i] = s.cells(&destinations.kinds[i], sources, own, remote, row, there)
		}
		for _, at := range destinations.list {
			for _, shift := range of[at.kind] {
				shift.Axis, shift.Lo, shift.Hi = a, uint16(at.lo), uint16(at.hi)
				list = appendShift(list, shift)
			}
		}
	}
	return list
}

// appendShift adds a range, or makes the one before it longer. The one before it is among the last few: those of the same destinations that
// differ by source ports.
func appendShift(list []Shift, s Shift) []Shift {
	const few = 8
	for i := max(0, len(list)-few); i < len(list); i++ {
		last := &list[i]
		if last.Axis == s.Axis && last.Cell == s.Cell && uint32(last.Hi)+1 == uint32(s.Lo) && slices.Equal(last.Sources, s.Sources) {
			last.Hi = s.Hi
			return list
		}
	}
	return append(list, s)
}

// cells compares the packets of one kind of destinations, for all source ports.
func (s *shifting) cells(to *column, sources spans, own, remote netip.Addr, row set, there place) (list []Shift) {
	fits := make(set, len(to.fits))
	changed := map[int]*Shift{} // by kind of source ports
	equal := true
	var first Cell
	for j, from := range sources.kinds {
		for i := range fits {
			fits[i] = to.fits[i] & from.fits[i]
		}
		packet := to.packet
		packet.SrcPort = from.packet.SrcPort
		packet.Src, packet.Dst = remote, own
		if s.demand.direction == model.Egress {
			packet.Src, packet.Dst = own, remote
		}
		cell := s.judge(packet, row, fits, there)
		if j == 0 {
			first = cell
		}
		equal = equal && cell == first
		if cell.Was != cell.Becomes {
			changed[j] = &Shift{Packet: packet, Cell: cell}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if equal {
		return []Shift{*changed[0]}
	}
	for _, at := range sources.list {
		if shift := changed[at.kind]; shift != nil {
			shift.Sources = append(shift.Sources, Run{Lo: uint16(at.lo), Hi: uint16(at.hi)})
		}
	}
	for j := range sources.kinds {
		if shift := changed[j]; shift != nil {
			list = append(list, *shift)
		}
	}
	return list
}

func (s *shifting) judge(packet model.Packet, row, fits set, there place) Cell {
	confirm := func(r *model.MatchRule) bool {
		port := packet.SrcPort
		if s.demand.direction == model.Egress {
			port = packet.DstPort
		}
		return portsFit(s.demand.remote(r), packet.Protocol, port, there.in)
	}
	s.demand.judge(0, row, fits, confirm, &s.was)
	s.demand.judge(s.second, row, fits, confirm, &s.is)
	return Cell{s.was.allow, s.is.allow, s.demand.points[s.was.by], s.demand.points[s.is.by]}
}
