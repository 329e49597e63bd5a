package chains

import (
	"fmt"
	"strconv"
)

// Shape has the dimensions of the graph of chains. A wider tree has fewer levels, and more rules in each of them.
type Shape struct {
	// Bits is the number of bits that one chain of a tree tests.
	Bits int
	// Levels bounds the levels of a search for a port, those for source ports included. 0: there is no bound.
	Levels int
	// Depth bounds the depth of nested chains from a hook on. 0: there is no bound.
	Depth int
}

// Legacy returns the shape for legacy iptables, where only the number of rules on a packet's way matters.
func Legacy() Shape { return Shape{Bits: 2} }

// NFTDepth is the kernel's bound for the depth of nested chains of iptables-nft.
const NFTDepth = 15

// NFT returns the shape for iptables-nft: the narrowest one within NFTDepth.
func NFT() Shape { return Shape{Bits: 5, Levels: 3, Depth: NFTDepth} }

// depth returns the greatest depth of nested chains: two before the slots, those of their tree, the slot's tree, the leaf, its other
// side, the part that it shares with others, the search for ports, and the chain that denies.
func (s Shape) depth(m Marks) int { return 2 + 2*levels(m.width, s.Bits) + 3 + s.Levels + 1 }

// check returns an error if the graph could be too deep, or a dimension is out of range.
func (s Shape) check(m Marks) error {
	if s.Bits < 1 || s.Bits > m.width {
		return fmt.Errorf("a tree of chains that test %d bits each", s.Bits)
	}
	if s.Depth == 0 {
		return nil
	}
	if need := s.depth(m); s.Levels == 0 || need > s.Depth {
		return &TooDeepError{Need: need, Most: s.Depth}
	}
	return nil
}

// TooDeepError reports that chains would be nested deeper than the kernel allows.
type TooDeepError struct{ Need, Most int }

func (e *TooDeepError) Error() string {
	return fmt.Sprintf("chains %d deep; at most %d are possible", e.Need, e.Most)
}

// arity returns the number of branches in each chain of a search for one of n spans.
func (s Shape) arity(n, levels int) int {
	arity := 1 << s.Bits
	for s.Levels > 0 && power(arity, levels) < n {
		arity++
	}
	return arity
}

func power(n, k int) int {
	out := 1
	for range k {
		out *= n
	}
	return out
}

// perChain returns how many of n spans each chain below one gets, as evenly as possible; 1: there are no chains below. It makes as
// few levels as possible, and the chains of the last one as long as allowed: a short chain costs more than its rules.
func perChain(n, arity int) int {
	last := max(arity, fewSpans)
	if n <= last {
		return 1
	}
	below := last // the spans that a chain below can have in all
	for below*arity < n {
		below *= arity
	}
	ways := (n + below - 1) / below
	return (n + ways - 1) / ways
}

// portSearch makes the chains of a search for a port.
type portSearch struct {
	w      *writer
	index  int
	source bool // it searches the packet's source port, not its destination port
	side   side
	name   string
	rest   target
	arity  int
	made   int
	chains []Chain
}

// chain makes a chain for the spans, and those below it.
func (p *portSearch) chain(name string, spans []span) {
	at := len(p.chains)
	p.chains = append(p.chains, Chain{})
	var lines []line
	each := perChain(len(spans), p.arity)
	for len(spans) > 0 {
		n := min(each, len(spans))
		if n == 1 {
			lines = append(lines, p.w.send(ofPorts(p.index, spans[0].lo, spans[0].hi, p.source), spans[0].to, p.side)...)
		} else {
			p.made++
			below := p.name + strconv.Itoa(p.made)
			lines = append(lines, line{match: ofPorts(p.index, spans[0].lo, spans[n-1].hi, p.source), verdict: "-g " + below})
			p.chain(below, spans[:n])
		}
		spans = spans[n:]
	}
	lines = append(lines, p.w.send("", p.rest, p.side)...)
	p.chains[at] = p.w.o.Marks.made(name, lines)
}
