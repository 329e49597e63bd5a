package chains

import (
	"fmt"
	"strconv"
)

// Shape says what the graph of chains is to look like. A wider tree has fewer levels, and more rules in each of them.
type Shape struct {
	// Bits of a number that a chain of a tree tests.
	Bits int
	// Levels is how many chains a search for a port may pass, those for source ports included. 0: as many as there need be.
	Levels int
	// Depth is how many chains a packet may pass from a hook on, each coming from the one before. 0: any number.
	Depth int
}

// Legacy is the shape for legacy iptables, in which only the number of rules passed counts.
func Legacy() Shape { return Shape{Bits: 2} }

// NFTDepth is how many chains from a hook on the kernel lets a rule of iptables-nft be.
const NFTDepth = 15

// NFT is the shape for iptables-nft: as wide as it must be for that depth.
func NFT() Shape { return Shape{Bits: 5, Levels: 3, Depth: NFTDepth} }

// depth is how many chains a packet may pass: two before the slots, those of their tree, the slot's tree, the leaf, its other
// side, what it has in common with others, the search for ports, and the one that denies.
func (s Shape) depth(m Marks) int { return 2 + 2*levels(m.width, s.Bits) + 3 + s.Levels + 1 }

// check returns an error if the graph could be too deep, or the shape is none.
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

// TooDeepError says that packets would pass more chains, each coming from the one before, than the kernel lets them.
type TooDeepError struct{ Need, Most int }

func (e *TooDeepError) Error() string {
	return fmt.Sprintf("chains %d deep; at most %d are possible", e.Need, e.Most)
}

// arity is how many ways a search for one of n spans divides in a chain.
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

// perChain is how many of n spans each chain below one gets, as evenly as can be; 1: there is none below. It makes the fewest
// levels, and the last of them as long as may be: a short chain costs more than its rules.
func perChain(n, arity int) int {
	last := max(arity, fewSpans)
	if n <= last {
		return 1
	}
	below := last // what a chain below can have in all
	for below*arity < n {
		below *= arity
	}
	ways := (n + below - 1) / below
	return (n + ways - 1) / ways
}

// portSearch makes the chains that look for a port.
type portSearch struct {
	w      *writer
	index  int
	source bool // source ports of the packet are looked for
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
