package calc

import (
	"cmp"
	"math"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// ruleset is the rules of an active policy or profile for one direction. Its rules are replaced when they change.
type ruleset struct {
	key       model.PolicyKey // of the policy or profile
	staged    bool
	action    model.StagedAction // if it is staged
	direction model.Direction

	rules  *model.PolicyRules
	serial uint64 // names rules; never used twice
	uses   map[*definition]struct{}
}

const stagedAccount = "staged/" // and a namespace: in no namespace's name

// account is whom a ruleset's definitions are charged to: its namespace. That of staged policies is another than that of the
// enforced ones, so that they take nothing from those.
func (rs *ruleset) account() string {
	if rs.staged {
		return stagedAccount + rs.key.Namespace
	}
	return rs.key.Namespace
}

// build works out the rules of a ruleset from those of its policy or profile and reports whether they differ from before. Rules that are
// equal keep their pointer.
func (x *setIndex) build(rs *ruleset, source []model.Rule) bool {
	b := newBuilder(x, rs, source)
	before := b.spent
	if _, b.over = x.relief.refused[rs]; b.over || x.spending.isTried(rs.account()) {
		x.relief.later[rs], b.over = struct{}{}, true
	}
	rules := &model.PolicyRules{Key: rs.key, Staged: rs.staged, StagedAction: rs.action, Rules: b.all()}
	if b.over {
		// Sets that it used before stay defined: its earlier rules may still be in force.
		rules.Rules, rules.Refused = nil, x.spending.over(rs, b.tooMany)
		x.spending.refused[rs] = x.spending.sumOf(rs.account())
		x.spending.tried[rs.account()] += b.spent - before
		for d := range b.uses {
			x.unused[d] = struct{}{}
		}
	} else {
		delete(x.spending.refused, rs)
		x.use(rs, b.uses)
	}
	if was := rs.rules; was != nil && was.Key == rules.Key && was.Staged == rules.Staged && was.StagedAction == rules.StagedAction && was.Refused == rules.Refused &&
		equalRules(was.Rules, rules.Rules) {
		return false
	}
	rs.rules = rules
	return true
}

// builder turns Rules into MatchRules and collects the definitions they refer to.
type builder struct {
	sets   *setIndex
	rs     *ruleset
	source []model.Rule
	uses   map[*definition]struct{}
	spent  int // by the namespace, these included
	most   int // that it may have spent
	over   bool

	references     int  // definitions of the namespace, these included
	mostReferences int  // that it may have
	tooMany        bool // it would have more, and is over for that

	tried map[*selector.Selector]int // see candidates
	block []model.PortMatch          // see newPorts

	estimated bool                  // it is known that there is room for all
	planned   map[definitionKey]int // by one that only estimates, with the number of sets by port; nil: it makes definitions
}

func newBuilder(x *setIndex, rs *ruleset, source []model.Rule) *builder {
	b := &builder{sets: x, rs: rs, source: source, uses: map[*definition]struct{}{}, most: x.spending.most(rs), mostReferences: x.spending.mostReferences(rs)}
	b.spent, b.references = x.spending.besides(rs)
	if rs.key.Namespace == "" {
		b.most, b.mostReferences, b.estimated = math.MaxInt, math.MaxInt, true // of those who may write policy for all
	}
	return b
}

// all resolves all rules, unless they are over.
func (b *builder) all() []model.MatchRule {
	rules := make([]model.MatchRule, 0, len(b.source))
	for i := 0; i < len(b.source) && !b.over; i++ {
		rules = b.rule(rules, &b.source[i])
	}
	b.over = b.over || b.spent > b.most // by what came last
	return rules
}

// rule appends a rule, resolved. It becomes several if it names ports whose numbers, or a Service whose backends, do not all count. A rule is
// large, so it is built where it stays.
func (b *builder) rule(rules []model.MatchRule, r *model.Rule) []model.MatchRule {
	if len(rules) == cap(rules) {
		rules = slices.Grow(rules, 1)
	}
	rules = rules[:len(rules)+1]
	m := &rules[len(rules)-1]
	m.Action, m.Index, m.Name, m.Unmatchable = r.Action, r.Index, r.Name, r.Unmatchable
	m.IPVersion, m.Protocol, m.NotProtocol, m.ICMP, m.NotICMP = r.IPVersion, r.Protocol, r.NotProtocol, r.ICMP, r.NotICMP
	if m.Unmatchable != "" {
		return rules // no sets for a rule that never matches
	}
	source := b.side(&m.Source, &r.Source, r.Protocol)
	destination := b.side(&m.Destination, &r.Destination, r.Protocol)
	if s := r.Source.Service; s != nil {
		d := b.byService(kindServiceAddrs, *s)
		m.Source.In, source.in = append(m.Source.In, b.set(d)), append(source.in, d.past()...)
	}
	if s := r.Destination.Service; s != nil {
		d := b.byService(kindServicePort, *s)
		m.Destination.Ports, destination.in = &model.PortMatch{Named: b.ports(d)}, append(destination.in, pastOf(d, r.Protocol)...)
	}
	if source.isEmpty() && destination.isEmpty() { // nearly always
		return rules
	}
	whole := *m
	return withPast(rules[:len(rules)-1], &whole, source, destination)
}

// side resolves one side of a rule, but for its Service. Validation does not let a side have both a Service and ports.
func (b *builder) side(s *model.Side, e *model.Entity, protocol *uint8) (p past) {
	s.Nets, s.NotNets = orNil(e.Nets), orNil(e.NotNets)
	// With named ports alone the selector is folded into their sets.
	folded := len(e.NamedPorts) > 0 && len(e.Ports) == 0
	if e.Selector != nil && !folded {
		d := b.bySelector(e.Selector)
		s.In, p.in = []model.SetID{b.set(d)}, d.past()
	}
	if e.NotSelector != nil {
		d := b.bySelector(e.NotSelector)
		s.NotIn, p.notIn = []model.SetID{b.set(d)}, d.past()
	}
	if e.Nodes != nil {
		s.In = append(s.In, b.set(b.byNodes(e.Nodes)))
	}
	var named, notNamed []pastSet
	s.Ports, named = b.portMatch(e.Ports, e.NamedPorts, protocol, e.Selector)
	s.NotPorts, notNamed = b.portMatch(e.NotPorts, e.NotNamedPorts, protocol, e.Selector)
	p.in, p.notIn = append(p.in, named...), append(p.notIn, notNamed...)
	return p
}

// portMatch is nil without ports of either kind. Names are those that endpoints expose that sel selects; nil: all. Past are
// sets of those whose numbers do not count.
func (b *builder) portMatch(ranges []model.PortRange, names []string, protocol *uint8, sel *selector.Selector) (m *model.PortMatch, past []pastSet) {
	if len(ranges)+len(names) == 0 {
		return nil, nil
	}
	m = b.newPorts()
	m.Ranges = orNil(ranges)
	if len(names) == 0 {
		return m, nil
	}
	if sel == nil {
		sel = selector.All()
	}
	for _, name := range names {
		if b.over {
			break
		}
		d := b.byNamedPort(name, protocol, sel)
		m.Named, past = append(m.Named, b.ports(d)...), append(past, d.past()...)
	}
	slices.SortFunc(m.Named, func(a, b model.PortSet) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Set, b.Set))
	})
	m.Named = slices.Compact(m.Named)
	return m, past
}

// mostInBlock is how many port lists share memory at most.
const mostInBlock = 64

// newPorts returns an empty port list. Those of large policies share memory with their neighbours, with which they come and go.
func (b *builder) newPorts() *model.PortMatch {
	if len(b.block) == cap(b.block) {
		b.block = make([]model.PortMatch, 0, min(2*cap(b.block)+1, mostInBlock))
	}
	b.block = b.block[:len(b.block)+1]
	return &b.block[len(b.block)-1]
}

// set returns the id of the only set of a definition that is not by port; of nil, none.
func (b *builder) set(d *definition) model.SetID {
	if d == nil {
		return ""
	}
	return d.sets[portKey{}].id
}

// ports returns the sets of a definition by port, by protocol and port; of nil, none.
func (b *builder) ports(d *definition) []model.PortSet {
	if d == nil {
		return nil
	}
	b.spent += len(d.ports)
	var list []model.PortSet
	for _, k := range d.ports {
		if k.past {
			continue
		}
		list = append(list, model.PortSet{Protocol: k.protocol, Port: k.port, Set: d.sets[k].id})
	}
	return list
}

// orNil makes an empty list nil, so that equal rules compare equal in tests, too.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
