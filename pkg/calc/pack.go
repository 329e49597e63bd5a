package calc

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/keyset"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// packedRules are rules in a tenth of the memory. They are unpacked when the rules of this node are built of them. Very many
// policies say the same of other pods, so they share the text, which has everything but the selectors.
type packedRules struct {
	text  *ruleText             // nil: no rules
	first *selector.Selector    // that they mention; nil: none
	more  *[]*selector.Selector // the others, in the order of their mention; nil: none
}

// size is how many bytes the text has.
func (r packedRules) size() int {
	if r.text == nil {
		return 0
	}
	return len(r.text.text)
}

// boxed is a pointer to rules; nil: none.
func boxed(r packedRules) *packedRules {
	if r.text == nil {
		return nil
	}
	return &r
}

// unboxed is the opposite of boxed.
func (r *packedRules) unboxed() packedRules {
	if r == nil {
		return packedRules{}
	}
	return *r
}

// ruleText is a text that packed rules share.
type ruleText struct {
	text  string
	users int
}

// ruleTexts has the texts of all packed rules.
type ruleTexts struct {
	keyset.Set[string, ruleText]
	scratch []byte // of pack
}

func newRuleTexts() ruleTexts {
	return ruleTexts{Set: keyset.New(func(t *ruleText) string { return t.text })}
}

// hold returns a text for one more user.
func (s *ruleTexts) hold(text string) *ruleText {
	t := s.Get(text)
	if t == nil {
		t = &ruleText{text: text}
		s.Put(t)
	}
	t.users++
	return t
}

// replace drops the text of rules that others take the place of, and returns those.
func (s *ruleTexts) replace(was, now packedRules) packedRules {
	if was.text != nil {
		if was.text.users--; was.text.users == 0 {
			s.Delete(was.text.text)
		}
	}
	return now
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

// pack packs rules. Empty lists come back as nil ones.
func pack(lists [2][]model.Rule, intern func(*selector.Selector) *selector.Selector, texts *ruleTexts) packedRules {
	if len(lists[0])+len(lists[1]) == 0 {
		return packedRules{}
	}
	const most = 1 << 20 // of scratch
	p := packer{intern: intern, text: texts.scratch[:0]}
	for _, rules := range lists {
		p.uint(uint64(len(rules)))
		for i := range rules {
			p.rule(&rules[i])
		}
	}
	packed := packedRules{text: texts.hold(string(p.text))}
	if cap(p.text) <= most {
		texts.scratch = p.text
	}
	if len(p.selectors) > 0 {
		packed.first = p.selectors[0]
	}
	if len(p.selectors) > 1 {
		more := slices.Clone(p.selectors[1:])
		packed.more = &more
	}
	return packed
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
