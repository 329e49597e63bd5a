package iptables

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

func routeTo(iface string, prefixes ...string) (list []further.Route) {
	for _, p := range prefixes {
		list = append(list, further.Route{Prefix: netip.MustParsePrefix(p), Interface: iface})
	}
	return list
}

// connect makes connections with these ends those that there are.
func (n *fakeNode) connect(ends ...string) {
	n.flows.ends = nil
	for _, a := range ends {
		n.flows.ends = append(n.flows.ends, netip.MustParseAddr(a))
	}
}

// wantGone demands that of connections with these ends those are gone, and adds them again.
func (n *fakeNode) wantGone(t *testing.T, when string, all []string, gone ...string) {
	t.Helper()
	var missing []string
	for _, a := range all {
		if !slices.Contains(n.flows.ends, netip.MustParseAddr(a)) {
			missing = append(missing, a)
		}
	}
	if !slices.Equal(missing, gone) {
		t.Errorf("%s: connections of %v are gone, want %v", when, missing, gone)
	}
	n.connect(all...)
}

// routed notes routes, has the dataplane look at them, and applies.
func (n *fakeNode) routed(t *testing.T, routes ...[]further.Route) {
	t.Helper()
	n.routes = slices.Concat(routes...)
	n.state.kept.cost = 0
	for range flowsEvery {
		if _, err := n.Sweep(); err != nil {
			t.Fatal(err)
		}
	}
	n.mustApply(t)
}

// Where live connections are kept, those of a further source go when it is listed no more, or routed elsewhere. Those of others with
// addresses in the same prefix stay.
func TestKeptConnectionsGoWithTheirFurtherSource(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	all := []string{"203.0.113.7", "203.0.113.200", "198.51.100.1", "8.8.8.8", "10.0.0.10", "2001:db8::7"}
	n.routes = slices.Concat(routeTo("cali1", "203.0.113.0/24", "2001:db8::/64"), routeTo("", "203.0.113.192/26"))
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1"), listingAt("next", "cali2", "10.0.9.2"))...)
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "0.0.0.0/0", "::/0"))
	n.connect(all...)
	n.mustApply(t)
	n.Resync()
	n.mustApply(t)
	n.wantGone(t, "listed", all)
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))
	n.wantGone(t, "a prefix is listed no more", all, "2001:db8::7")
	n.mustApply(t, listingAt("next", "cali2", "10.0.9.2", "203.0.113.0/24"))
	n.wantGone(t, "another lists it, too", all)
	n.routed(t, routeTo("cali2", "203.0.113.0/24"), routeTo("", "203.0.113.192/26"))
	n.wantGone(t, "routed to another", all, "203.0.113.7")
	n.routed(t, routeTo("cali2", "203.0.113.0/24"), routeTo("", "203.0.113.192/26"))
	n.wantGone(t, "as before", all)
	n.routed(t)
	n.wantGone(t, "the route is gone", all, "203.0.113.7")
	n.routed(t, routeTo("cali2", "203.0.113.0/24"))
	n.wantGone(t, "the route is there again", all) // the endpoint may have begun connections meanwhile
	n.mustApply(t, model.Absent(listingAt("next", "cali2", "10.0.9.2")))
	n.wantGone(t, "the endpoint is gone", all, "203.0.113.7", "203.0.113.200")
	n.mustApply(t, listingAt("heir", "cali2", "10.0.9.3", "203.0.113.0/25"))
	n.wantGone(t, "an heir lists it", all, "203.0.113.7")
}

// Where no judgement in force is continued, as in a switch from BPF, all live connections are judged as packets come to the chains. So none
// ends before, also of a further source: entries that translate addresses are needed.
func TestConnectionsThatWillBeJudgedAreKept(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	all := []string{"203.0.113.7", "8.8.8.8"}
	n.connect(all...)
	n.routes = routeTo("cali1", "203.0.113.0/24")
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"))...)
	n.wantGone(t, "packets come to the chains", all)
	n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1"))
	n.wantGone(t, "listed no more", all, "203.0.113.7")
}

// While routes cannot be read, plans go on, with the routes of before. That is logged once, and the next look that can read routes has the
// other connections ended.
func TestKeptConnectionsGoWithoutReadableRoutes(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	n.routes = slices.Concat(routeTo("cali1", "203.0.113.0/24"), routeTo("cali2", "198.51.100.0/24"))
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"), listingAt("next", "cali2", "10.0.9.2"))...)
	all := []string{"203.0.113.7", "198.51.100.7", "8.8.8.8"}
	n.connect(all...)
	k := n.state.kept
	var logged strings.Builder
	k.log = slog.New(slog.NewTextHandler(&logged, nil))
	lines := func(want string) {
		t.Helper()
		var levels []string
		for line := range strings.Lines(logged.String()) {
			levels = append(levels, strings.Fields(line)[1])
		}
		if got := strings.Join(levels, " "); got != want {
			t.Errorf("logged %q, want levels %q", logged.String(), want)
		}
	}
	readable := k.routes
	for _, want := range []string{"level=WARN", "level=WARN level=INFO level=WARN"} {
		k.routes = func(map[string]bool) ([]further.Route, error) { return nil, errRefused }
		n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1"), listingAt("next", "cali2", "10.0.9.2", "198.51.100.0/24"))
		n.wantGone(t, "without routes", all, "203.0.113.7") // by the routes of before
		n.routed(t, n.routes)
		n.mustApply(t, listingAt("next", "cali2", "10.0.9.2", "198.51.100.0/24", "192.0.2.0/24"))
		n.wantGone(t, "still without routes", all, "203.0.113.7")
		lines(want)
		k.routes = readable
		n.routed(t, n.routes)
		n.wantGone(t, "with routes", all, "203.0.113.7", "198.51.100.7")
		n.routed(t, n.routes)
		n.wantGone(t, "later", all)
		lines(want + " level=INFO")
		n.mustApply(t, listingAt("gw", "cali1", "10.0.9.1", "203.0.113.0/24"), listingAt("next", "cali2", "10.0.9.2"))
		n.wantGone(t, "as at first", all, "203.0.113.7", "198.51.100.7")
		n.routed(t, n.routes) // forgets those to cali2
	}
}

// A prefix that a pod begins to list counts only when connections of its former owner have ended: otherwise the pod could continue them. An
// attempt that fails changes nothing of that.
func TestConnectionsEndBeforeAFurtherSourceCounts(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	n.routes = slices.Concat(routeTo("cali1", "198.51.100.0/24"), routeTo("cali2", "203.0.113.0/24"))
	n.mustApply(t, append(stage{}.updates(), listingAt("gw", "cali1", "10.0.9.1", "198.51.100.0/24"), listingAt("next", "cali2", "10.0.9.2", "192.0.2.0/24"))...)
	all := []string{"203.0.113.7", "198.51.100.7", "8.8.8.8"}
	n.connect(all...)
	failing, waits := errRefused, 0
	n.state.world.unseen.waiting = func(context.Context) error {
		waits++
		n.wantSources(t, "before the wait", "cali1")
		return nil
	}
	n.flows.ending = func() error {
		if waits == 0 {
			t.Error("connections end while packets may be under way that found the former sources")
		}
		n.wantSources(t, "before connections end", "cali2", "192.0.2.0/24")
		return failing
	}
	updates := []model.Update{listingAt("gw", "cali1", "10.0.9.1"), listingAt("next", "cali2", "10.0.9.2", "192.0.2.0/24", "203.0.113.0/24")}
	if err := n.apply(updates...); !errors.Is(err, errRefused) {
		t.Errorf("Apply: %v", err)
	}
	n.wantSources(t, "while connections cannot end", "cali2", "192.0.2.0/24")
	failing = nil
	n.mustApply(t)
	n.wantSources(t, "when connections have ended", "cali2", "192.0.2.0/24", "203.0.113.0/24")
	n.flows.ending = nil
	n.wantGone(t, "listed", all, "203.0.113.7", "198.51.100.7")
}
