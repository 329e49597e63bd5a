package model

import (
	"encoding/binary"
	"net/netip"

	"github.com/margay-project/margay/pkg/selector"
)

// PackedRules are the rules of a policy, by direction, in a tenth of the memory or less.
type PackedRules struct {
	Text      string // everything but the selectors
	Selectors []*selector.Selector
}

// mostPlain is how many rules a policy has that is not worth packing.
const mostPlain = 64

// Pack returns a policy that holds its rules in little memory, for the time until somebody looks at them: Ingress and Egress are empty, and
// Rules unpacks them. One with few rules stays as it is. A rule takes 440 bytes, and a tenant may write one in 2. Equal selectors become one.
func (p *Policy) Pack() *Policy {
	if p == nil || p.Packed != nil || len(p.Ingress)+len(p.Egress) <= mostPlain {
		return p
	}
	same := map[string]*selector.Selector{}
	text, selectors := PackRules(nil, p.Rules(), func(s *selector.Selector) *selector.Selector {
		if known := same[s.String()]; known != nil {
			return known
		}
		same[s.String()] = s
		return s
	})
	packed := *p
	packed.Ingress, packed.Egress = nil, nil
	packed.Packed = &PackedRules{Text: string(text), Selectors: selectors}
	return &packed
}

// Unpack returns a policy with its rules in Ingress and Egress.
func (p *Policy) Unpack() *Policy {
	if p == nil || p.Packed == nil {
		return p
	}
	rules, plain := p.Rules(), *p
	plain.Ingress, plain.Egress, plain.Packed = rules[Ingress], rules[Egress], nil
	return &plain
}

// Pack returns an update that holds the rules of its policy in little memory; any other as it is. It is for what waits in a queue or a list.
func Pack(u Update) Update {
	if p, is := u.(PolicyUpdate); is {
		p.Policy = p.Policy.Pack()
		return p
	}
	return u
}

// Unpack is the opposite of Pack.
func Unpack(u Update) Update {
	if p, is := u.(PolicyUpdate); is {
		p.Policy = p.Policy.Unpack()
		return p
	}
	return u
}

// Rules are the rules of a policy by direction, packed or not.
func (p *Policy) Rules() [2][]Rule {
	if p.Packed == nil {
		return [2][]Rule{Ingress: p.Ingress, Egress: p.Egress}
	}
	return UnpackRules(p.Packed.Text, p.Packed.Selectors)
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
	hasLast // the selector is the one that was mentioned last
)

// PackRules appends rules, by direction, to text. It returns the selectors that they mention apart, in the order of their mention but for
// repetitions; intern may replace each by an equal one. Empty lists come back as nil ones.
func PackRules(text []byte, lists [2][]Rule, intern func(*selector.Selector) *selector.Selector) ([]byte, []*selector.Selector) {
	p := packer{intern: intern, text: text}
	for _, rules := range lists {
		p.uint(uint64(len(rules)))
		for i := range rules {
			p.rule(&rules[i])
		}
	}
	return p.text, p.selectors
}

type packer struct {
	text      []byte
	selectors []*selector.Selector // that were mentioned, but for repetitions
	intern    func(*selector.Selector) *selector.Selector
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

func (p *packer) rule(r *Rule) {
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
	for _, m := range []*ICMPMatch{r.ICMP, r.NotICMP} {
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

func entityBits(e *Entity) uint64 {
	return bits(len(e.Nets) > 0, len(e.NotNets) > 0, e.Selector != nil, e.NotSelector != nil, len(e.Ports) > 0,
		len(e.NamedPorts) > 0, len(e.NotPorts) > 0, len(e.NotNamedPorts) > 0, e.Service != nil, e.Nodes != nil)
}

// entity packs one side of a rule; nothing if it has no bits.
func (p *packer) entity(e *Entity, has uint64) {
	if has == 0 {
		return
	}
	if e.Selector != nil {
		if s, n := p.intern(e.Selector), len(p.selectors); n > 0 && p.selectors[n-1] == s {
			has = has&^hasSelector | hasLast
		} else {
			p.selectors = append(p.selectors, s)
		}
	}
	p.uint(has)
	for _, s := range []*selector.Selector{e.NotSelector, e.Nodes} {
		if s != nil {
			p.selectors = append(p.selectors, p.intern(s))
		}
	}
	for _, nets := range [][]netip.Prefix{e.Nets, e.NotNets} {
		if len(nets) > 0 {
			p.nets(nets)
		}
	}
	for _, ports := range [][]PortRange{e.Ports, e.NotPorts} {
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
