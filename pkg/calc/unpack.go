package calc

import (
	"encoding/binary"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// lists unpacks. A text made by pack is complete, so there is no error for a text that ends early: it gives zeros.
func (r packedRules) lists() [2][]model.Rule {
	var lists [2][]model.Rule
	if r.text == nil {
		return lists
	}
	u := unpacker{rest: []byte(r.text.text), next: r.first}
	if r.more != nil {
		u.selectors = *r.more
	}
	for d := range lists {
		if n := u.uint(); n > 0 {
			lists[d] = make([]model.Rule, n)
		}
		for i := range lists[d] {
			u.rule(&lists[d][i])
		}
	}
	return lists
}

// unpacker reads the text that packer wrote, in the same order.
type unpacker struct {
	rest       []byte
	last, next *selector.Selector   // that was mentioned, and that is mentioned next
	selectors  []*selector.Selector // those after next
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
	u.last, u.next = u.next, nil
	if len(u.selectors) > 0 {
		u.next, u.selectors = u.selectors[0], u.selectors[1:]
	}
	return u.last
}

func (u *unpacker) rule(r *model.Rule) {
	has := u.uint()
	r.Action, r.Index = model.Action(u.byte()), int(u.uint())
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

func (u *unpacker) icmp() *model.ICMPMatch {
	m := &model.ICMPMatch{Type: u.byte()}
	if u.byte() != 0 {
		m.Code = new(u.byte())
	}
	return m
}

func (u *unpacker) entity(e *model.Entity) {
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
		e.Service = &model.ServiceKey{Namespace: u.string(), Name: u.string()}
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

func (u *unpacker) ports() []model.PortRange {
	ports := make([]model.PortRange, u.uint())
	for i := range ports {
		ports[i] = model.PortRange{Lo: uint16(u.uint()), Hi: uint16(u.uint())}
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
