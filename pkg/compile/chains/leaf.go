package chains

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
)

// fewSpans is the greatest number of spans of ports that are compared one after the other; more get a search tree.
const fewSpans = 8

// side is the direction of the packets that a chain is for.
type side uint8

const (
	opener   side = iota // packets as the flow was opened
	answerer             // packets against the flow: ends and ports are the other way round
)

// portNames are the matches of protocols with ports.
var portNames = [...]string{bpf.L4TCP: "tcp", bpf.L4UDP: "udp", bpf.L4SCTP: "sctp"}

// portLetters are the last part of the name of a chain for a protocol's ports.
const portLetters = "tus"

// ofProtocol is the match of a whole protocol.
func ofProtocol(number uint8) string { return fmt.Sprintf("-p %d", number) }

// ofPorts matches ports of a protocol. source: source ports.
func ofPorts(index int, lo, hi uint16, source bool) string {
	name, option := portNames[index], "--dport"
	if source {
		option = "--sport"
	}
	if lo == hi {
		return fmt.Sprintf("-p %s -m %s %s %d", name, name, option, lo)
	}
	return fmt.Sprintf("-p %s -m %s %s %d:%d", name, name, option, lo, hi)
}

// writer makes chains of leaves, for one slot.
type writer struct {
	o       *Options
	name    string // of the slot
	effects *effects
	pro     *profiles
	source  bool // there are profiles, so that a second search, for source ports, may follow a search for ports
}

// send returns the lines that send packets to a target.
func (w *writer) send(match string, to target, s side) []line {
	switch {
	case to.isBase():
		return []line{{match: match, verdict: "-g " + w.baseName(to.base(), s)}}
	case !to.isEffect():
		return []line{{match: match, verdict: "-g " + w.profileName(to.profile(), s)}}
	}
	decision := w.effects.list[to]
	verdict := "deny"
	if decision.Action == bpf.RuleAllow {
		verdict = "ok"
	}
	return []line{{match: match, verdict: "-g " + w.o.Names.Chain(verdict), decides: decision}}
}

func (w *writer) baseName(b int, s side) string    { return fmt.Sprintf("%s-%c%d", w.name, "bB"[s], b) }
func (w *writer) profileName(k int, s side) string { return fmt.Sprintf("%s-%c%d", w.name, "pP"[s], k) }
func (w *writer) rowName(row uint16, s side) string {
	return fmt.Sprintf("%s-%c%d", w.name, "rR"[s], row)
}

// part is a part of a leaf: lines, and the chains that they lead to.
type part struct {
	lines  []line
	chains []Chain
}

func (p *part) add(match string, to target, s side, w *writer) {
	p.lines = append(p.lines, w.send(match, to, s)...)
}

// leaf makes the lines of a leaf for one side, and the chains below it.
func (w *writer) leaf(name string, l *leaf, s side) part {
	var p part
	for index := range bpf.L4ICMP {
		w.ports(&p, name, index, l, s)
	}
	w.icmp(&p, l, s)
	w.others(&p, l, s)
	p.add("", l.rest(), s, w)
	return p
}

// ports adds the lines of one protocol with ports.
func (w *writer) ports(p *part, name string, index int, l *leaf, s side) {
	k := l[index]
	protocol := ofProtocol(match.L4Protocols[index])
	if len(k.spans) > fewSpans {
		below := name + portLetters[index:index+1]
		p.lines = append(p.lines, line{match: protocol, verdict: "-g " + below})
		search := portSearch{w: w, index: index, source: s == answerer, side: s, name: below, rest: k.rest, arity: w.o.Shape.arity(len(k.spans), w.levels())}
		search.chain(below, k.spans)
		p.chains = append(p.chains, search.chains...)
		return
	}
	for _, x := range k.spans {
		p.add(ofPorts(index, x.lo, x.hi, s == answerer), x.to, s, w)
	}
	if k.rest != l.rest() {
		p.add(protocol, k.rest, s, w)
	}
}

// others adds the lines of protocols without an index of their own.
func (w *writer) others(p *part, l *leaf, s side) {
	for _, x := range l[bpf.L4Other].spans {
		for number := int(x.lo); number <= int(x.hi); number++ {
			if w.matchable(number) {
				p.add(ofProtocol(uint8(number)), x.to, s, w)
			}
		}
	}
}

// matchable reports whether a rule can match a protocol without an index by its number. Numbers of IPv6 extension headers are not
// protocols of packets.
func (w *writer) matchable(number int) bool {
	for _, p := range match.L4Protocols {
		if int(p) == number {
			return false
		}
	}
	switch number {
	case 0:
		return false
	case 43, 44, 51, 60:
		return w.o.Family == 4
	}
	return true
}

// row makes the chains of a row. A row whose two sides are short is one chain.
func (w *writer) row(row uint16, l *leaf) []Chain {
	name, mirrorName := w.rowName(row, opener), w.rowName(row, answerer)
	forth, back := w.leaf(name, l, opener), w.leaf(mirrorName, l, answerer)
	m := w.o.Marks
	if lines, ok := joined(&forth, &back); ok {
		return []Chain{m.made(name, lines)}
	}
	first := line{only: against, verdict: "-g " + mirrorName}
	out := []Chain{m.made(name, append([]line{first}, forth.lines...)), m.made(mirrorName, back.lines)}
	return append(append(out, forth.chains...), back.chains...)
}

// mostInline is the greatest number of lines of both sides that share one chain.
const mostInline = 4

// joined returns the lines of both sides as those of one chain; not ok: they are too many, or their last lines differ.
func joined(forth, back *part) (lines []line, ok bool) {
	n, m := len(forth.lines)-1, len(back.lines)-1
	if len(forth.chains)+len(back.chains) > 0 || forth.lines[n] != back.lines[m] {
		return nil, false
	}
	if slices.Equal(forth.lines, back.lines) {
		return forth.lines, true
	}
	if n+m > mostInline {
		return nil, false
	}
	for _, l := range forth.lines[:n] {
		l.only = along
		lines = append(lines, l)
	}
	for _, l := range back.lines[:m] {
		l.only = against
		lines = append(lines, l)
	}
	return append(lines, forth.lines[n]), true
}

// short returns the lines of a row without the last one, if they are so few that they can replace the jump to its chain; nil: they
// cannot. In a wide tree one chain has too many such jumps.
func (w *writer) short(l *leaf) []line {
	if w.o.Shape.Bits > 2 || !l.rest().isEffect() {
		return nil
	}
	for _, k := range l {
		if len(k.spans) > mostShort {
			return nil
		}
	}
	forth, back := w.leaf("", l, opener), w.leaf("", l, answerer)
	lines, ok := joined(&forth, &back)
	if !ok || len(lines)-1 > mostShort {
		return nil
	}
	return lines[:len(lines)-1]
}

const mostShort = 2

// profile makes the chain of a profile for one side: source ports of the opener.
func (w *writer) profile(k int, s side) []Chain {
	of, name := w.pro.list[k], w.profileName(k, s)
	search := portSearch{w: w, index: of.index, source: s == opener, side: s, name: name, rest: of.keys.rest, arity: w.o.Shape.arity(len(of.keys.spans), 1)}
	search.chain(name, of.keys.spans)
	return search.chains
}

// base makes the chains of the common part of rows, one for each side.
func (w *writer) base(b int, l *leaf) []Chain {
	var out []Chain
	for _, s := range []side{opener, answerer} {
		p := w.leaf(w.baseName(b, s), l, s)
		out = append(append(out, w.o.Marks.made(w.baseName(b, s), p.lines)), p.chains...)
	}
	return out
}
