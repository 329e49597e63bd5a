package shares

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

var (
	podA, podB     = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	podA6          = netip.MustParseAddr("fd00::1")
	node           = netip.MustParseAddr("192.0.2.1")
	outside        = netip.MustParseAddr("198.51.100.1")
	service        = netip.MustParseAddr("10.96.0.1")
	idA, idB       = model.WorkloadID("shop", "a"), model.WorkloadID("shop", "b")
	formerPod      = netip.MustParseAddr("10.0.0.9")
	leftOut        = model.WorkloadID("", "not charged")
	judgedMark     = uint32(1)
	turnedMark     = uint32(2)
	aloneMark      = uint32(4)
	establishedFor = 5 * 24 * time.Hour
)

func testEnds() *Ends {
	return NewEnds(testKnown(func(mark uint32) Mark {
		return Mark{Judged: mark&judgedMark != 0, Turned: mark&turnedMark != 0, Alone: mark&aloneMark != 0}
	}))
}

func testKnown(read func(mark uint32) Mark) Known {
	return Known{
		Endpoints: []Endpoint{
			{ID: idA, Iface: "calia", Addrs: []netip.Addr{podA, podA6}, Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32")}},
			{ID: idB, Iface: "calib", Addrs: []netip.Addr{podB}, Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
		},
		Node: []netip.Addr{node},
		Left: []netip.Addr{formerPod},
		Routes: func(interfaces map[string]bool) ([]further.Route, error) {
			if !interfaces["calia"] || !interfaces["calib"] {
				return nil, errors.New("not all interfaces are asked about")
			}
			return []further.Route{{Prefix: netip.MustParsePrefix("203.0.113.0/25"), Interface: "calia"}, {Prefix: netip.MustParsePrefix("203.0.113.64/26"), Interface: "calib"},
				{Prefix: netip.MustParsePrefix("203.0.113.100/32")}}, nil
		},
		Read: read,
	}
}

// between is a connection that src has opened to dst, and that answers comes to from.
func between(src, dst, from netip.Addr, mark uint32) conntrack.Entry {
	return conntrack.Entry{Original: conntrack.Tuple{Src: src, Dst: dst, Protocol: unix.IPPROTO_TCP},
		Reply: conntrack.Tuple{Src: from, Dst: src, Protocol: unix.IPPROTO_TCP}, Mark: mark}
}

func TestOwners(t *testing.T) {
	ends := testEnds()
	routed, err := ends.routed()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		e    conntrack.Entry
		want model.EndpointID
	}{
		{"between pods", between(podA, podB, podB, judgedMark), idA},
		{"to the outside", between(podB, outside, outside, judgedMark), idB},
		{"by a Service", between(podA, service, podB, judgedMark), idA},
		{"IPv6", between(podA6, netip.MustParseAddr("fd00::9"), netip.MustParseAddr("fd00::9"), judgedMark), idA},
		{"to the node", between(podA, node, node, 0), idA},
		{"from the outside", between(outside, podB, podB, judgedMark), idB},
		{"from the outside by a node port", between(outside, node, podB, judgedMark), idB},
		{"from the node", between(node, podA, podA, 0), leftOut},
		{"from the node, as an answer", between(node, podA, podA, turnedMark), idA},
		{"of the node to itself", between(netip.MustParseAddr("127.0.0.1"), service, podA, 0), leftOut},
		{"to the node from the outside", between(outside, node, node, 0), leftOut},
		{"through the node", between(outside, node, netip.MustParseAddr("10.0.9.9"), 0), leftOut},
		{"of a former pod", between(formerPod, outside, outside, judgedMark), model.EndpointID{}},
		{"from a further source", between(netip.MustParseAddr("203.0.113.7"), outside, outside, judgedMark), idA},
		{"from one that two list", between(netip.MustParseAddr("203.0.113.65"), outside, outside, judgedMark), idB},
		{"from one to a pod", between(netip.MustParseAddr("203.0.113.65"), podA, podA, judgedMark), idB},
		{"to a further source", between(outside, netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.7"), judgedMark), idA},
		{"to one that the node routes elsewhere", between(outside, netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("203.0.113.100"), judgedMark), model.EndpointID{}},
		{"with the address of one, past all pods", between(netip.MustParseAddr("203.0.113.7"), outside, outside, 0), leftOut},
		{"from the node to a further source", between(node, netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.7"), 0), leftOut},
		{"IPv6, without a route", between(netip.MustParseAddr("fd00::9"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8::7"), judgedMark), model.EndpointID{}},
		{"from a pod to a further source", between(podA, netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("203.0.113.7"), judgedMark), idA},
		{"of a packet judged by itself, to a pod", between(netip.MustParseAddr("203.0.113.9"), podB, podB, aloneMark), model.EndpointID{}},
		{"of a packet judged by itself, to the outside", between(netip.MustParseAddr("203.0.113.9"), outside, outside, aloneMark), model.EndpointID{}},
		{"of another program's zone", func() conntrack.Entry { e := between(podA, podB, podB, judgedMark); e.Zone = 3; return e }(), leftOut},
	} {
		got := leftOut
		if n, ok := ends.owner(&c.e, routed); ok {
			got = ends.owners[n]
		}
		if got != c.want {
			t.Errorf("%s: charged to %q, want %q", c.what, got, c.want)
		}
	}
	for _, c := range []conntrack.Entry{
		between(netip.MustParseAddr("203.0.113.7"), outside, outside, judgedMark), between(outside, netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8::7"), judgedMark),
	} {
		if n, ok := ends.owner(&c, nil); ok {
			t.Errorf("%v is charged to %q while routes are not known", c.Original, ends.owners[n])
		}
	}
	former := between(formerPod, outside, outside, judgedMark)
	if n, ok := ends.owner(&former, nil); !ok || n != unknown {
		t.Errorf("%v is charged to %d, %v: no route matters to it", former.Original, n, ok)
	}
}

// A kernel whose marks carry nothing: what passes through the node is neither charged nor removed, but for connections of endpoints that
// have left.
func TestOwnersWithoutMarks(t *testing.T) {
	ends := NewEnds(testKnown(nil))
	routed, err := ends.routed()
	if err != nil {
		t.Fatal(err)
	}
	masqueraded := func(e conntrack.Entry) conntrack.Entry {
		e.Reply.Dst = node
		return e
	}
	elsewhere, listed := netip.MustParseAddr("10.0.9.9"), netip.MustParseAddr("203.0.113.7")
	for _, c := range []struct {
		what string
		e    conntrack.Entry
		want model.EndpointID
	}{
		{"between pods", between(podA, podB, podB, 0), idA},
		{"to the outside, with the node's address", masqueraded(between(podB, outside, outside, 0)), idB},
		{"by a Service", between(podA, service, podB, 0), idA},
		{"to the node", between(podA, node, node, 0), idA},
		{"from the outside by a node port", masqueraded(between(outside, node, podB, 0)), idB},
		{"from the node", between(node, podA, podA, 0), leftOut},
		{"of the node by a Service", between(node, service, podA, 0), leftOut},
		{"from the node, with any mark", between(node, podA, podA, turnedMark), leftOut},
		{"with any mark", between(podA, podB, podB, aloneMark|turnedMark), idA},
		{"to the node from the outside", between(outside, node, node, 0), leftOut},
		{"by a node port to another node", masqueraded(between(outside, node, elsewhere, 0)), leftOut},
		{"through the node", between(outside, elsewhere, elsewhere, 0), leftOut},
		{"through the node, with a mark", between(outside, elsewhere, elsewhere, judgedMark), leftOut},
		{"of a former pod", masqueraded(between(formerPod, outside, outside, 0)), model.EndpointID{}},
		{"to a former pod", between(outside, formerPod, formerPod, 0), model.EndpointID{}},
		{"from a former pod to a pod", between(formerPod, podA, podA, 0), idA},
		{"from the node to a former pod", between(node, formerPod, formerPod, 0), leftOut},
		{"by a node port to a pod elsewhere with the address of a former one", masqueraded(between(outside, node, formerPod, 0)), leftOut},
		{"from a further source", between(listed, outside, outside, 0), idA},
		{"to a further source", between(outside, listed, listed, 0), idA},
		{"from a further source that the node routes elsewhere", between(netip.MustParseAddr("203.0.113.100"), outside, outside, 0), leftOut},
		{"of another program's zone", func() conntrack.Entry { e := between(podA, podB, podB, 0); e.Zone = 3; return e }(), leftOut},
	} {
		got := leftOut
		if n, ok := ends.owner(&c.e, routed); ok {
			got = ends.owners[n]
		}
		if got != c.want {
			t.Errorf("%s: charged to %q, want %q", c.what, got, c.want)
		}
	}
	unrouted := between(listed, formerPod, formerPod, 0)
	if n, ok := ends.owner(&unrouted, nil); ok {
		t.Errorf("charged to %q while routes are not known", ends.owners[n])
	}
}

// Of endpoints that claim the same address, the one that is open has it.
func TestTheOpenEndpointHasTheAddress(t *testing.T) {
	for _, openFirst := range []bool{true, false} {
		list := []Endpoint{{ID: idA, Addrs: []netip.Addr{podA}, Open: openFirst}, {ID: idB, Addrs: []netip.Addr{podA}, Open: !openFirst}}
		ends := NewEnds(Known{Endpoints: list})
		e := between(podA, outside, outside, 0)
		n, ok := ends.owner(&e, nil)
		if want := map[bool]model.EndpointID{true: idA, false: idB}[openFirst]; !ok || ends.owners[n] != want {
			t.Errorf("charged to %q, want %q", ends.owners[n], want)
		}
	}
}

func TestFairShares(t *testing.T) {
	for _, c := range []struct {
		counts     []int
		room, want int
	}{
		{nil, 10, 0},
		{[]int{0, 0}, 10, 0},
		{[]int{3, 4}, 10, 4},
		{[]int{3, 7}, 10, 7},
		{[]int{3, 8}, 10, 7},
		{[]int{100, 1, 1}, 10, 8},
		{[]int{100, 90, 1}, 10, 4},
		{[]int{100, 100, 100}, 10, 3},
		{[]int{5, 5}, 0, 0},
	} {
		got := Fair(c.counts, c.room)
		if got != c.want {
			t.Errorf("Fair(%v, %d) = %d, want %d", c.counts, c.room, got, c.want)
		}
		kept := 0
		for _, n := range c.counts {
			kept += min(n, got)
		}
		if kept > c.room {
			t.Errorf("Fair(%v, %d): %d are kept", c.counts, c.room, kept)
		}
	}
	for _, c := range []struct {
		others int
		limit  uint32
		want   int
	}{{0, 800, 500}, {100, 800, 400}, {300, 800, 200}, {700, 800, 200}} {
		if got := room(c.others, c.limit); got != c.want {
			t.Errorf("with %d others of %d there is room for %d, want %d", c.others, c.limit, got, c.want)
		}
	}
}

// A table near its limit of 800: pod a has most of it, and of each kind some.
func TestTheWorstConnectionsGoFirst(t *testing.T) {
	ends := testEnds()
	list := slices.Concat(
		some(300, "opened lately", podA, conntrack.SeenReply|conntrack.Assured, establishedFor),
		some(100, "idle for an hour", podA, conntrack.SeenReply|conntrack.Assured, establishedFor-time.Hour),
		some(50, "sending", podA, conntrack.SeenReply|conntrack.Assured, inDoubt-time.Second), // another time-out, so not idle
		some(20, "answered", podA, conntrack.SeenReply, time.Minute),
		some(70, "not answered", podA, 0, time.Minute),
		some(90, "of b", podB, 0, time.Minute),
		some(40, "of the node", node, conntrack.SeenReply|conntrack.Assured, establishedFor))
	for limit, want := range map[uint32]map[string]int{
		2000: {},
		// 500 may stay, b has 90 and the node 40: a keeps 370 of 540.
		800: {"not answered": 70, "answered": 20, "idle for an hour": 80},
		// 440: a keeps 310.
		704: {"not answered": 70, "answered": 20, "idle for an hour": 100, "opened lately, sending": 40},
	} {
		tally := newTally(ends, nil)
		for _, c := range list {
			if n, ok := ends.owner(&c.Entry, nil); ok {
				tally.add(n, tally.rank(&c.Entry))
			} else {
				tally.others++
			}
		}
		d, got := decide(tally, limit), map[string]int{}
		for _, c := range list {
			if n, ok := ends.owner(&c.Entry, nil); ok && d.cuts[n].removes(tally.rank(&c.Entry)) {
				if c.kind == "opened lately" || c.kind == "sending" { // of one rank
					c.kind = "opened lately, sending"
				}
				got[c.kind]++
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("with room for %d, removed %v, want %v", limit, got, want)
		}
	}
}

// charged is a connection of a kind for a test.
type charged struct {
	conntrack.Entry
	kind string
}

func some(n int, kind string, opener netip.Addr, s conntrack.Status, remaining time.Duration) (list []charged) {
	for range n {
		e := between(opener, outside, outside, judgedMark)
		e.Status, e.Timeout = s, remaining
		list = append(list, charged{e, kind})
	}
	return list
}

// Endpoints come and go between the pass that decides and the one that removes.
func TestADecisionFollowsItsEndpoints(t *testing.T) {
	before := testEnds()
	tally := newTally(before, nil)
	for range 700 {
		e := between(podA, outside, outside, judgedMark)
		n, _ := before.owner(&e, nil)
		tally.add(n, tally.rank(&e))
	}
	after := NewEnds(Known{Endpoints: []Endpoint{{ID: idB, Addrs: []netip.Addr{podA}}, {ID: idA, Addrs: []netip.Addr{podB}}}, Read: before.read})
	d := decide(tally, 800).of(after)
	for addr, want := range map[netip.Addr]int{podA: 0, podB: 200} {
		if got := d.cuts[after.pods[addr]].excess; got != want {
			t.Errorf("of %v, %d are to be removed, want %d", addr, got, want)
		}
	}
}

// A connection that the kernel has picked up goes before all that it has seen begin, however busy it is: another endpoint may be its
// opener.
func TestAConnectionThatWasPickedUpGoesFirst(t *testing.T) {
	tally := newTally(testEnds(), nil)
	picked := between(podA, outside, outside, judgedMark)
	picked.Status, picked.Timeout, picked.PickedUp, picked.TCPState = conntrack.SeenReply|conntrack.Assured, establishedFor, true, conntrack.TCPEstablished
	seen := picked
	seen.PickedUp = false
	idle := seen
	tally.rank(&seen)
	idle.Timeout -= 24 * time.Hour
	if p, i := tally.rank(&picked), tally.rank(&idle); p >= i {
		t.Errorf("rank %d, and of an idle one %d", p, i)
	}
}
