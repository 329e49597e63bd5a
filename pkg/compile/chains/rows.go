package chains

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// target is the next place of packets that a row has matched: the number of an effect; or, below 0, a chain with further matches: of
// source ports, or of the part that a row shares with others.
type target int32

const (
	firstBase target = -1 << 24

	// noEffect is the effect of packets that no entry matches.
	noEffect target = 0
)

func profile(k int) target { return target(-1 - k) }
func base(b int) target    { return firstBase - target(b) }

func (t target) isEffect() bool { return t >= 0 }
func (t target) isBase() bool   { return t <= firstBase }
func (t target) profile() int   { return int(-1 - t) }
func (t target) base() int      { return int(firstBase - t) }

// span is a range of keys (ports, ICMP type << 8 | code, protocol numbers) with one target, both ends included.
type span struct {
	lo, hi uint16
	to     target
}

// keys are the keys of one protocol index: spans in ascending order, and the target of all others.
type keys struct {
	spans []span
	rest  target
}

// leaf is the contents of a row, by protocol index. Its rest is the target of protocols without an index that are in no span.
type leaf [bpf.L4Indexes]keys

func (l *leaf) rest() target { return l[bpf.L4Other].rest }

// uniform reports whether all packets go one way.
func (l *leaf) uniform() bool {
	for i := range l {
		if len(l[i].spans) > 0 || l[i].rest != l.rest() {
			return false
		}
	}
	return true
}

// effects numbers the decisions of one program, each once.
type effects struct {
	program *match.Program
	first   map[model.RuleID]uint16 // the first entry of each rule of policy
	number  map[Decision]target
	list    []Decision
}

func newEffects(p *match.Program) *effects {
	e := &effects{program: p, first: make(map[model.RuleID]uint16), number: map[Decision]target{}}
	for i, id := range p.IDs {
		if _, ok := e.first[id]; !ok {
			e.first[id] = uint16(i)
		}
	}
	e.add(denied())
	return e
}

func (e *effects) add(x Decision) target {
	n, ok := e.number[x]
	if !ok {
		n = target(len(e.list))
		e.number[x] = n
		e.list = append(e.list, x)
	}
	return n
}

// of returns the target of an outcome. Passes and Log rules on the way make no difference: the agent reports them from copies of
// packets, which it evaluates again.
func (e *effects) of(o bpf.Outcome) target {
	x := Decision{Action: o.Action, Entry: o.Rule, ID: o.Id}
	if int(o.Rule) < len(e.program.IDs) {
		x.Entry = e.first[e.program.IDs[o.Rule]]
	}
	return e.add(x)
}

// profiles are lists of spans of source ports, each once. They are the targets of keys whose rules compare source ports.
type profiles struct {
	number map[string]int
	list   []profileOf
}

type profileOf struct {
	index int // of the protocol
	keys  keys
}

func (p *profiles) add(index int, spans []span) target {
	if len(spans) == 1 {
		return spans[0].to
	}
	key := make([]byte, 1, 1+8*len(spans))
	key[0] = byte(index)
	for _, s := range spans {
		key = append(key, byte(s.lo), byte(s.lo>>8), byte(s.hi), byte(s.hi>>8), byte(s.to), byte(s.to>>8), byte(s.to>>16), byte(s.to>>24))
	}
	n, ok := p.number[string(key)]
	if !ok {
		if p.number == nil {
			p.number = map[string]int{}
		}
		n = len(p.list)
		p.number[string(key)] = n
		p.list = append(p.list, profileOf{index, portKeys(spans)})
	}
	return profile(n)
}

// rows are the rows of a table or program. Row 0 denies.
type rows interface {
	// of returns the row of a class.
	of(c classes.Class) uint16
	// leaf returns the contents of a row for packets of the family. It is valid until the next call.
	leaf(row uint16) (*leaf, error)
	// common returns the shared part of the rows with the target base(b).
	common(b int) (*leaf, error)
}

// join appends a span, or makes the last one longer.
func join(list []span, s span) []span {
	if n := len(list); n > 0 && list[n-1].to == s.to && int(list[n-1].hi)+1 == int(s.lo) {
		list[n-1].hi = s.hi
		return list
	}
	return append(list, s)
}

// portKeys turns spans that cover all ports into keys: most of the spans are the rest.
func portKeys(spans []span) keys {
	count := map[target]int{}
	most := spans[len(spans)-1].to
	for _, s := range spans {
		if count[s.to]++; count[s.to] > count[most] {
			most = s.to
		}
	}
	return without(spans, most)
}

// without returns the keys with the given rest, whose spans are left out.
func without(spans []span, rest target) keys {
	if len(spans) == 1 && spans[0].to == rest {
		return keys{rest: rest}
	}
	return keys{slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.to == rest }), rest}
}

// ICMPTypeError reports that a policy distinguishes codes of ICMP type 255, which iptables reads as every type.
type ICMPTypeError struct{}

func (ICMPTypeError) Error() string { return "iptables cannot match ICMP type 255" }

// leafOfSpans makes a leaf of spans that cover all keys of each index, for one family.
func leafOfSpans(full *[bpf.L4Indexes][]span, family uint8) (*leaf, error) {
	var l leaf
	for i, spans := range full {
		var err error
		if l[i], err = keysOf(i, spans, family); err != nil {
			return nil, err
		}
	}
	return &l, nil
}

// keysOf turns spans that cover all keys of one index into keys.
func keysOf(index int, spans []span, family uint8) (keys, error) {
	switch {
	case index <= bpf.L4SCTP:
		return portKeys(spans), nil
	case index == bpf.L4Other: // protocol 0 cannot be matched, and no rule can name it
		return without(spans, spans[0].to), nil
	case index == bpf.L4ICMP && family == 4 && spans[len(spans)-1].lo > 0xff00:
		return keys{}, ICMPTypeError{}
	case index == bpf.L4ICMP && family == 4, index == bpf.L4ICMPv6 && family == 6:
		return without(spans, spans[len(spans)-1].to), nil
	}
	return keys{rest: spans[0].to}, nil // ICMP of the other family has no types
}
