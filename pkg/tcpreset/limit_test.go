package tcpreset

import (
	"net/netip"
	"testing"
	"time"
)

func TestOfEachDirectionAFewPacketsBecomeResets(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:1000"), netip.MustParseAddrPort("10.0.0.2:80")
	var l limit
	start := time.Now()
	count := func(from, until time.Duration, d direction) (n int) {
		for at := from; at < until; at += 10 * time.Millisecond {
			if l.due(d, start.Add(at)) {
				n++
			}
		}
		return n
	}
	if n := count(0, 3*time.Second, direction{a, b}); n != 3 {
		t.Errorf("%d of the packets of 3 s become resets, want 3", n)
	}
	if n := count(0, 3*time.Second, direction{b, a}); n != 3 {
		t.Errorf("%d of the packets of the other direction, want 3", n)
	}
	if n := count(3*time.Second, forgetAfter, direction{a, b}); n != resetsOf-3 {
		t.Errorf("%d of those that come later, want %d", n, resetsOf-3)
	}
	if n := count(forgetAfter, forgetAfter+time.Second, direction{a, b}); n != 1 {
		t.Errorf("%d of a later connection with the same ends, want 1", n)
	}
}

// However many connections there are, those that are remembered have a bounded number.
func TestTheOldestDirectionIsForgotten(t *testing.T) {
	of := func(i int) direction {
		return direction{src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1)}
	}
	var l limit
	now := time.Now()
	for i := range 3*remembered + 7 {
		if !l.due(of(i), now) {
			t.Fatalf("the first packet of direction %d becomes no reset", i)
		}
	}
	if len(l.of) != remembered || len(l.known) != remembered {
		t.Errorf("%d and %d are remembered, want %d", len(l.of), len(l.known), remembered)
	}
	const last = 3*remembered + 6
	for _, i := range []int{last, last - remembered + 1} {
		if l.due(of(i), now) {
			t.Errorf("a further packet of direction %d becomes a reset, and %d was the last new one", i, last)
		}
	}
	if !l.due(of(last-remembered), now) {
		t.Error("a direction is remembered for too long")
	}
}
