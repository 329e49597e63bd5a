package verify

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// column is a kind of protocols and ports, with a packet of that kind, without addresses, and the steps that it fits.
type column struct {
	packet model.Packet
	fits   set
}

// axisProtocols are the protocols with an Axis of their own.
var axisProtocols = [AxisOther]uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP, model.ProtoICMPv6}

// columns returns all kinds of protocols and ports that the demand or the policy distinguishes for packets of one family between
// an own address and others.
func (d *demand) columns(k Policy, family uint8, own place) []column {
	var all []column
	for a := range Axes {
		all = append(all, d.axisColumns(k, a, family, own)...)
	}
	return all
}

func (d *demand) axisColumns(k Policy, a Axis, family uint8, own place) []column {
	fitsFrom := func(r *model.MatchRule, p *model.Packet) bool {
		return portsFit(&r.Source, p.Protocol, p.SrcPort, d.membership(model.Ingress, own))
	}
	fitsTo := func(r *model.MatchRule, p *model.Packet) bool {
		return protocolFits(r, p, family) && portsFit(&r.Destination, p.Protocol, p.DstPort, d.membership(model.Egress, own))
	}
	if a > AxisSCTP { // without ports, so that a rule with source ports fits none
		return d.cells(a, family, true, k.Destinations(a), func(r *model.MatchRule, p *model.Packet) bool {
			return fitsTo(r, p) && fitsFrom(r, p)
		})
	}
	destinations := d.cells(a, family, true, k.Destinations(a), fitsTo)
	sources := d.cells(a, family, false, k.Sources(a), fitsFrom)
	all := make([]column, 0, len(destinations)*len(sources))
	if d.room < 8*len(d.steps)/64*len(destinations)*len(sources) {
		d.room = -1
		return nil
	}
	for _, to := range destinations {
		for _, from := range sources {
			c := column{packet: to.packet, fits: d.newSet()}
			c.packet.SrcPort = from.packet.SrcPort
			for i := range c.fits {
				c.fits[i] = to.fits[i] & from.fits[i]
			}
			all = append(all, c)
		}
	}
	return all
}

// membership returns the membership in sets of the address at one end: the source, which is the remote side of ingress, or the
// destination, which is that of egress. nil: that end is the remote side.
func (d *demand) membership(remoteOf model.Direction, own place) func(model.SetID) bool {
	if d.direction == remoteOf {
		return nil
	}
	return own.in
}

// cells returns the kinds of ports, types or protocols on one axis, each once.
func (d *demand) cells(a Axis, family uint8, destination bool, runs []Run, fits func(*model.MatchRule, *model.Packet) bool) []column {
	var found []column
	seen := map[string]bool{}
	d.spans(a, family, destination, runs, fits, func(_, _ uint32, packet model.Packet, key string, fit set) bool {
		if seen[key] {
			return true
		}
		if d.room -= 2 * len(key); d.room < 0 { // for the key and the set
			return false
		}
		seen[key] = true
		found = append(found, column{packet, slices.Clone(fit)})
		return true
	})
	if d.room < 0 {
		return nil
	}
	return found
}

// spans calls do for each span of places on one axis that no rule and no run tells apart, in order, with a packet of its first place. Equal
// keys are those of equal kinds. The set is valid during the call. do returns false to end.
func (d *demand) spans(a Axis, family uint8, destination bool, runs []Run, fits func(*model.MatchRule, *model.Packet) bool,
	do func(lo, hi uint32, packet model.Packet, key string, fit set) bool) {
	first, last := uint32(0), uint32(0xffff)
	if a == AxisOther {
		last = 0xff
	} else if p := axisProtocols[a]; a > AxisSCTP && !hasTypes(p, family) {
		first, last = uint32(p), uint32(p) // of the other family's ICMP only the protocol is known
	}
	changes := d.changes(a, destination)
	for _, r := range runs {
		changes[uint32(r.Lo)] = append(changes[uint32(r.Lo)], -1)
	}
	changes[first] = append(changes[first], -1)
	if a == AxisOther {
		for _, p := range axisProtocols { // a kind that begins there is asked for behind it
			changes[uint32(p)] = append(changes[uint32(p)], -1)
			changes[uint32(p)+1] = append(changes[uint32(p)+1], -1)
		}
	}
	fit, begun := d.newSet(), false
	named := d.namedPlaces(a, destination)
	places := slices.Sorted(maps.Keys(changes))
	for n, at := range places {
		if at < first || at > last {
			continue
		}
		packet := packetAt(a, at, destination)
		if !begun {
			begun, fit = true, d.fitting(func(r *model.MatchRule) bool { return fits(r, &packet) })
		}
		for _, i := range changes[at] {
			if i >= 0 {
				fit.put(i, fits(d.steps[i].rule, &packet))
			}
		}
		if a == AxisOther && slices.Contains(axisProtocols[:], uint8(at)) {
			continue // never asked here
		}
		end := last
		if n+1 < len(places) {
			end = min(last, places[n+1]-1)
		}
		key := kindOf(columnAt(runs, uint16(at)), fit)
		if named[at] {
			key = string(binary.LittleEndian.AppendUint32([]byte(key), at))
		}
		if !do(at, end, packet, key, fit) {
			return
		}
	}
}

// namedPlaces returns the ports of the remote side that rules match by name. Each is a kind of its own: which addresses fit there depends on
// the port, and a set of steps does not say so.
func (d *demand) namedPlaces(a Axis, destination bool) map[uint32]bool {
	if a > AxisSCTP || destination != (d.direction == model.Egress) {
		return nil
	}
	places := map[uint32]bool{}
	for i := range d.steps {
		if !d.steps[i].mixed {
			continue
		}
		remote := d.remote(d.steps[i].rule)
		for _, m := range []*model.PortMatch{remote.Ports, remote.NotPorts} {
			if m == nil {
				continue
			}
			for _, n := range m.Named {
				places[uint32(n.Port)] = true
			}
		}
	}
	return places
}

func (s set) put(i int, in bool) {
	s[i/64] &^= 1 << (i % 64)
	if in {
		s.add(i)
	}
}

func kindOf(column uint32, s set) string {
	key := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+8*len(s)), column)
	for _, word := range s {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	return string(key)
}

// columnAt returns the number of the run that contains a key.
func columnAt(runs []Run, key uint16) uint32 {
	i, found := slices.BinarySearchFunc(runs, key, func(r Run, k uint16) int { return int(r.Lo) - int(k) })
	if !found {
		i--
	}
	if i < 0 {
		return 0
	}
	return runs[i].Column
}

// packetAt returns a packet at one place of an axis.
func packetAt(a Axis, key uint32, destination bool) model.Packet {
	switch {
	case a == AxisOther:
		return model.Packet{Protocol: uint8(key)}
	case a > AxisSCTP:
		return model.Packet{Protocol: axisProtocols[a], ICMPType: uint8(key >> 8), ICMPCode: uint8(key)}
	case destination:
		return model.Packet{Protocol: axisProtocols[a], DstPort: uint16(key)}
	}
	return model.Packet{Protocol: axisProtocols[a], SrcPort: uint16(key)}
}

// changes lists, by place on an axis, the steps whose rules may fit there and not just before it, or the other way round.
func (d *demand) changes(a Axis, destination bool) map[uint32][]int {
	at := map[uint32][]int{}
	for i := range d.steps {
		r := d.steps[i].rule
		if r == nil {
			continue
		}
		add := func(lo, hi uint32) {
			at[lo] = append(at[lo], i)
			at[hi+1] = append(at[hi+1], i)
		}
		switch {
		case a == AxisOther:
			for _, p := range []*uint8{r.Protocol, r.NotProtocol} {
				if p != nil {
					add(uint32(*p), uint32(*p))
				}
			}
		case a > AxisSCTP:
			addTypes(r, add)
		case destination:
			addPorts(&r.Destination, add)
		default:
			addPorts(&r.Source, add)
		}
	}
	return at
}

func addTypes(r *model.MatchRule, add func(lo, hi uint32)) {
	for _, m := range []*model.ICMPMatch{r.ICMP, r.NotICMP} {
		if m == nil {
			continue
		}
		lo, hi := uint32(m.Type)<<8, uint32(m.Type)<<8|0xff
		if m.Code != nil {
			lo |= uint32(*m.Code)
			hi = lo
		}
		add(lo, hi)
	}
}

func addPorts(s *model.Side, add func(lo, hi uint32)) {
	for _, m := range []*model.PortMatch{s.Ports, s.NotPorts} {
		if m == nil {
			continue
		}
		for _, r := range m.Ranges {
			if r.Lo <= r.Hi {
				add(uint32(r.Lo), uint32(r.Hi))
			}
		}
		for _, n := range m.Named {
			add(uint32(n.Port), uint32(n.Port))
		}
	}
}
