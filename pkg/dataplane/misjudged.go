package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
)

// RefusedAddr is an address, or a prefix, whose entry the kernel has refused to write or to remove. So it is judged by another class than
// its own.
type RefusedAddr struct {
	Prefix netip.Prefix
	Cause  error
	Kind   int // addresses of one kind are judged by the same class, and are to have the same one
}

// Misjudged are the refused addresses that the rules of an endpoint tell from what they are judged as: for these its newest policy is not
// in force. They may be thousands, so the endpoints of a node share one list.
type Misjudged struct {
	Refused []RefusedAddr // all of the node, ascending; must not be changed
	Kinds   []bool        // by kind: the rules tell it apart; nil: none
}

// Text is about the first of the addresses; empty: there are none.
func (m Misjudged) Text() string {
	return m.text(func(netip.Prefix) bool { return true })
}

// TextOf is about the first one that has one of addrs in it; empty: none has.
func (m Misjudged) TextOf(addrs []netip.Addr) string {
	return m.text(func(p netip.Prefix) bool { return slices.ContainsFunc(addrs, p.Contains) })
}

func (m Misjudged) text(concerns func(netip.Prefix) bool) string {
	if m.Kinds == nil {
		return ""
	}
	at := slices.IndexFunc(m.Refused, func(r RefusedAddr) bool { return m.Kinds[r.Kind] && concerns(r.Prefix) })
	if at < 0 {
		return ""
	}
	r := m.Refused[at]
	name := r.Prefix.String()
	if r.Prefix.IsSingleIP() {
		name = r.Prefix.Addr().String()
	}
	return fmt.Sprintf("its newest policy is not in force yet for %s: %v", name, r.Cause)
}
