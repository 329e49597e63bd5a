package chains

import "github.com/margay-project/margay/bpf"

// Sizes are upper bounds in rules. They show whether a policy is too large before any text is made.

// size returns the size of the chains of a row, or of the shared part of rows, for both sides.
func (w *writer) size(l *leaf) int {
	forth, back := 1, 1 // the lines of the rest
	chains := false
	for i := range l {
		k := l[i]
		rest := 0
		if k.rest != l.rest() {
			rest = 1
		}
		switch {
		case i <= bpf.L4SCTP && len(k.spans) > fewSpans:
			n := 1 + w.searchSize(len(k.spans))
			forth, back, chains = forth+n, back+n, true
		case i <= bpf.L4SCTP:
			forth, back = forth+len(k.spans)+rest, back+len(k.spans)+rest
		case i == bpf.L4Other:
			n := 0
			for _, s := range k.spans {
				n += int(s.hi-s.lo) + 1
			}
			forth, back = forth+n, back+n
		default:
			for _, s := range k.spans { // the codes of a type with the most frequent target need no lines of their own
				types := int(s.hi>>8) - int(s.lo>>8) + 1
				forth += types + min(int(s.hi-s.lo)+1, 2*128)
			}
			forth, back = forth+rest, back+rest
			if len(k.spans) > 0 {
				back += 129*len(icmpPairs[w.o.Family]) + 1
			}
		}
	}
	n := forth + back + 1
	if !chains && forth+back-2 <= mostInline {
		n = forth + back - 1
	}
	return n
}

// searchSize returns the size of a search for one of n spans.
func (w *writer) searchSize(n int) int {
	return searchRules(n, w.o.Shape.arity(n, w.levels()))
}

// levels returns the bound for the levels of a search for a port, which another search, for the source port, may follow.
func (w *writer) levels() int {
	if w.source {
		return max(1, w.o.Shape.Levels-1)
	}
	return w.o.Shape.Levels
}

// searchRules returns the number of rules that portSearch makes for n spans.
func searchRules(n, arity int) int {
	each := perChain(n, arity)
	if each == 1 {
		return n + 1
	}
	rules := 1 + (n+each-1)/each + n/each*searchRules(each, arity)
	if rest := n % each; rest > 1 {
		rules += searchRules(rest, arity)
	}
	return rules
}
