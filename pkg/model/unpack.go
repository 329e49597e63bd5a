package model

import (
	"encoding/binary"
	"net/netip"

	"github.com/margay-project/margay/pkg/selector"
)

// UnpackRules is the opposite of PackRules. A text made by that is complete, so there is no error for a text that ends early: it gives zeros.
func UnpackRules(text string, selectors []*selector.Selector) [2][]Rule {
	var lists [2][]Rule
	u := unpacker{rest: []byte(text), selectors: selectors}
	for d := range lists {
		if n := u.uint(); n > 0 {
			lists[d] = make([]Rule, n)
		}
		for i := range lists[d] {
			u.rule(&lists[d][i])
		}
	}
	return lists
}

// unpacker reads the text that packer wrote, in the same order.
type unpacker struct {
	rest      []byte
	last      *selector.Selector   // that was mentioned
	selectors []*selector.Selector // that are mentioned next
}

func (u *unpacker) uint() uint64 {
	n, size := binary.Uvarint(u.rest)
	u.rest = u.rest[max(0, size):]
	return n
}

func (u *unpacker) bytes(n int) []byte {
	n = min(n, len(u.rest))
	b := u.rest[:n]
	u.rest = u.rest[n:]
	return b
}

func (u *unpacker) byte() byte {
	if b := u.bytes(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (u *unpacker) string() string { return string(u.bytes(int(u.uint()))) }

func (u *unpacker) selector() *selector.Selector {
	u.last = nil
	if len(u.selectors) > 0 {
		u.last, u.selectors = u.selectors[0], u.selectors[1:]
	}
	return u.last
}

func (u *unpacker) rule(r *Rule) {
	has := u.uint()
	r.Action, r.Index = Action(u.byte()), int(u.uint())
	if has&hasIPVersion != 0 {
		r.IPVersion = u.byte()
	}
	if has&hasProtocol != 0 {
		r.Protocol = new(u.byte())
	}
	if has&hasNotProtocol != 0 {
		r.NotProtocol = new(u.byte())
	}
	if has&hasICMP != 0 {
		r.ICMP = u.icmp()
	}
	if has&hasNotICMP != 0 {
		r.NotICMP = u.icmp()
	}
	if has&hasSource != 0 {
		u.entity(&r.Source)
	}
	if has&hasDestination != 0 {
		u.entity(&r.Destination)
	}
	if has&hasUnmatchable != 0 {
		r.Unmatchable = u.string()
	}
	if has&hasName != 0 {
		r.Name = u.string()
	}
}

func (u *unpacker) icmp() *ICMPMatch {
	m := &ICMPMatch{Type: u.byte()}
	if u.byte() != 0 {
		m.Code = new(u.byte())
	}
	return m
}

func (u *unpacker) entity(e *Entity) {
	has := u.uint()
	if has&hasSelector != 0 {
		e.Selector = u.selector()
	}
	if has&hasLast != 0 {
		e.Selector = u.last
	}
	if has&hasNotSelector != 0 {
		e.NotSelector = u.selector()
	}
	if has&hasNodes != 0 {
		e.Nodes = u.selector()
	}
	if has&hasNets != 0 {
		e.Nets = u.nets()
	}
	if has&hasNotNets != 0 {
		e.NotNets = u.nets()
	}
	if has&hasPorts != 0 {
		e.Ports = u.ports()
	}
	if has&hasNotPorts != 0 {
		e.NotPorts = u.ports()
	}
	if has&hasNamedPorts != 0 {
		e.NamedPorts = u.names()
	}
	if has&hasNotNamedPorts != 0 {
		e.NotNamedPorts = u.names()
	}
	if has&hasService != 0 {
		e.Service = &ServiceKey{Namespace: u.string(), Name: u.string()}
	}
}

func (u *unpacker) nets() []netip.Prefix {
	nets := make([]netip.Prefix, u.uint())
	for i := range nets {
		size, bits := u.byte(), u.byte()
		addr, _ := netip.AddrFromSlice(u.bytes(int(size)))
		nets[i] = netip.PrefixFrom(addr, int(bits))
	}
	return nets
}

func (u *unpacker) ports() []PortRange {
	ports := make([]PortRange, u.uint())
	for i := range ports {
		ports[i] = PortRange{Lo: uint16(u.uint()), Hi: uint16(u.uint())}
	}
	return ports
}

func (u *unpacker) names() []string {
	names := make([]string, u.uint())
	for i := range names {
		names[i] = u.string()
	}
	return names
}
