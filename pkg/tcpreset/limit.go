package tcpreset

import (
	"net/netip"
	"time"
)

// The numbers in a reset are those of the packet that it is made from, so resets could carry data to an end that policy denies. Of each
// direction of a connection one packet in a second becomes a reset, and a few in all: the first one ends the connection if the receiver
// expects its number, and otherwise the receiver's acknowledgement does.
const (
	pauseOf     = time.Second
	resetsOf    = 30
	forgetAfter = 10 * time.Minute // a later connection may have the same ends
	// remembered is how many directions the limit knows. It forgets the oldest one for a further one, which takes at least 16 s: so many
	// copies are read in that time.
	remembered = 16 * copiesRate
)

// direction is one of a connection.
type direction struct{ src, dst netip.AddrPort }

// history is what was sent in a direction.
type history struct {
	first, last time.Time
	sent        int
}

// limit says which packets become resets. It is for one goroutine.
type limit struct {
	of     map[direction]*history
	known  []direction // in the order in which they came, from oldest on, and then from the beginning
	oldest int
}

// due reports whether a packet of the direction is to become a reset, and counts it if so.
func (l *limit) due(d direction, now time.Time) bool {
	h := l.of[d]
	if h == nil {
		h = &history{first: now}
		l.remember(d, h)
	}
	if now.Sub(h.first) >= forgetAfter {
		*h = history{first: now}
	}
	if h.sent == resetsOf || h.sent > 0 && now.Sub(h.last) < pauseOf {
		return false
	}
	h.sent, h.last = h.sent+1, now
	return true
}

func (l *limit) remember(d direction, h *history) {
	if l.of == nil {
		l.of = map[direction]*history{}
	}
	if len(l.known) < remembered {
		l.known = append(l.known, d)
	} else {
		delete(l.of, l.known[l.oldest])
		l.known[l.oldest] = d
		l.oldest = (l.oldest + 1) % remembered
	}
	l.of[d] = h
}
