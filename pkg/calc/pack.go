package calc

import (
	"encoding/binary"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// ruleStore keeps the rules of a policy or profile.
type ruleStore interface {
	// lists returns the rules by direction. They must not be changed.
	lists() [2][]model.Rule
}

// plainRules are rules as they came, until the flush that takes them in ends.
type plainRules [2][]model.Rule

func (r *plainRules) lists() [2][]model.Rule { return *r }

// packedRules are rules in a tenth of the memory. They are unpacked when the rules of this node are built of them.
type packedRules struct {
	text      string
	selectors []*selector.Selector // in the order of their mention
}

// Bits that say which fields of a rule, or of one of its sides, follow.
const (
	hasIPVersion = 1 << iota
	hasProtocol
	hasNotProtocol
	hasICMP
	hasNotICMP
	hasSource
	hasDestination
	hasUnmatchable
	hasName
)

const (
	hasNets = 1 << iota
	hasNotNets
	hasSelector
	hasNotSelector
	hasPorts
	hasNamedPorts
	hasNotPorts
	hasNotNamedPorts
	hasService
	hasNodes
)

// packed returns rules to be kept.
func packed(s ruleStore, intern func(*selector.Selector) *selector.Selector) ruleStore {
	if rules, ok := s.(*plainRules); ok {
		return pack(*rules, intern)
	}
	return s
}

// pack packs rules; nil if there are none. Empty lists come back as nil ones.
func pack(lists [2][]model.Rule, intern func(*selector.Selector) *selector.Selector) ruleStore {
	if len(lists[0])+len(lists[1]) == 0 {
		return nil
	}
	var p packer
	for _, rules := range lists {
		p.uint(uint64(len(rules)))
		for i := range rules {
			p.rule(&rules[i])
		}
	}
	selectors := make([]*selector.Selector, 0, len(p.selectors)) // as long as needed
	for _, s := range p.selectors {
		selectors = append(selectors, intern(s))
	}
	return &packedRules{string(p.text), selectors}
}

type packer struct {
	text      []byte
	selectors []*selector.Selector
}

func (p *packer) uint(n uint64) { p.text = binary.AppendUvarint(p.text, n) }

func (p *packer) string(s string) {
	p.uint(uint64(len(s)))
	p.text = append(p.text, s...)
}

// bits returns the sum of the bits whose condition holds.
func bits(conditions ...bool) (sum uint64) {
	for i, c := range conditions {
		if c {
			sum |= 1 << i
		}
	}
	return sum
}

func (p *packer) rule(r *model.Rule) {
	source, destination := entityBits(&r.Source), entityBits(&r.Destination)
	p.uint(bits(r.IPVersion != 0, r.Protocol != nil, r.NotProtocol != nil, r.ICMP != nil, r.NotICMP != nil,
		source != 0, destination != 0, r.Unmatchable != "", r.Name != ""))
	p.text = append(p.text, byte(r.Action))
	p.uint(uint64(r.Index))
	if r.IPVersion != 0 {
		p.text = append(p.text, r.IPVersion)
	}
	for _, protocol := range []*uint8{r.Protocol, r.NotProtocol} {
		if protocol != nil {
			p.text = append(p.text, *protocol)
		}
	}
	for _, m := range []*model.ICMPMatch{r.ICMP, r.NotICMP} {
		switch {
		case m == nil:
		case m.Code == nil:
			p.text = append(p.text, m.Type, 0)
		default:
			p.text = append(p.text, m.Type, 1, *m.Code)
		}
	}
	p.entity(&r.Source, source)
	p.entity(&r.Destination, destination)
	if r.Unmatchable != "" {
		p.string(r.Unmatchable)
	}
	if r.Name != "" {
		p.string(r.Name)
	}
}

func entityBits(e *model.Entity) uint64 {
	return bits(len(e.Nets) > 0, len(e.NotNets) > 0, e.Selector != nil, e.NotSelector != nil, len(e.Ports) > 0,
		len(e.NamedPorts) > 0, len(e.NotPorts) > 0, len(e.NotNamedPorts) > 0, e.Service != nil, e.Nodes != nil)
}

// entity packs one side of a rule; nothing if it has no bits.
func (p *packer) entity(e *model.Entity, has uint64) {
	if has == 0 {
		return
	}
	p.uint(has)
	for _, s := range []*selector.Selector{e.Selector, e.NotSelector, e.Nodes} {
		if s != nil {
			p.selectors = append(p.selectors, s)
		}
	}
	for _, nets := range [][]netip.Prefix{e.Nets, e.NotNets} {
		if len(nets) > 0 {
			p.nets(nets)
		}
	}
	for _, ports := range [][]model.PortRange{e.Ports, e.NotPorts} {
		if len(ports) > 0 {
			p.uint(uint64(len(ports)))
		}
		for _, r := range ports {
			p.uint(uint64(r.Lo))
			p.uint(uint64(r.Hi))
		}
	}
	for _, names := range [][]string{e.NamedPorts, e.NotNamedPorts} {
		if len(names) > 0 {
			p.uint(uint64(len(names)))
		}
		for _, name := range names {
			p.string(name)
		}
	}
	if e.Service != nil {
		p.string(e.Service.Namespace)
		p.string(e.Service.Name)
	}
}

func (p *packer) nets(nets []netip.Prefix) {
	p.uint(uint64(len(nets)))
	for _, n := range nets {
		addr := n.Addr().AsSlice()
		p.text = append(append(p.text, byte(len(addr)), byte(n.Bits())), addr...)
	}
}
