package attach

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// tardy answers about each address as before for so many lookups, like a kernel that notifies before it acts.
type tardy struct {
	routeSource
	early  map[netip.Addr]int
	before map[netip.Addr]int
}

func (s *tardy) deliveredTo(a netip.Addr) (int, error) {
	if s.early[a] > 0 {
		s.early[a]--
		return s.before[a], nil
	}
	return s.routeSource.deliveredTo(a)
}

// A lookup right after a notification can be answered as if nothing had changed (it is, of about one route in 3,000).
func TestRoutesAreAskedAgainAfterANotification(t *testing.T) {
	for early := range len(askAgain) + 1 {
		ns, _ := room(t)
		one := veth(t, "calione")
		setUp(t, one)
		gone := hostRouteTo(t, "10.0.0.1", one, nil)
		must(t, netlink.RouteAdd(gone))
		w := newRouteWatch(watchIn(ns), "cali")
		must(t, w.open())
		a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
		w.kernel = &tardy{w.kernel, map[netip.Addr]int{a: early, b: early}, map[netip.Addr]int{a: int(one)}}
		must(t, netlink.RouteDel(gone))
		must(t, netlink.RouteAdd(hostRouteTo(t, "fd00::1", one, nil)))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			keepUp(ctx, "routes", w, w.options.Logger)
		}()
		awaitRoutes(t, w.out, map[string]string{"fd00::1": "calione"})
		stop()
		<-done
		w.kernel.close()
	}
}

func TestQuestionsAreDueOnceForEachDelay(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	var q questions
	expect := func(now time.Duration, want ...netip.Addr) {
		t.Helper()
		got := slices.SortedFunc(maps.Keys(q.due(at(now))), netip.Addr.Compare)
		if !slices.Equal(got, want) {
			t.Errorf("after %s %v are due, want %v", now, got, want)
		}
	}
	if _, ok := q.next(); ok {
		t.Error("the zero value has something to ask")
	}
	q.add(at(0), map[netip.Addr]bool{a: true})
	q.add(at(10*time.Millisecond), map[netip.Addr]bool{b: true})
	if next, ok := q.next(); !ok || !next.Equal(at(askAgain[0])) {
		t.Errorf("next at %v, want %v", next, at(askAgain[0]))
	}
	expect(askAgain[0]-1, nil...)
	expect(askAgain[0], a)
	expect(askAgain[0]+10*time.Millisecond, b)
	expect(askAgain[0]+askAgain[1]-1, nil...)
	expect(time.Hour, a, b)
	if _, ok := q.next(); ok {
		t.Error("there is more to ask than was noted")
	}
	expect(2*time.Hour, nil...)
}
