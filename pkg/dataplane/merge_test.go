package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

// A set that goes while changes wait has the members of all of them. One that comes back begins another entry of the queue.
func TestASetThatGoesWhileChangesWaitKeepsItsLastMembers(t *testing.T) {
	a, b, c := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.0.0.3/32")
	var queue []model.Changes
	for _, change := range []model.SetChange{{Added: []netip.Prefix{a}, Removed: []netip.Prefix{b}}, {Added: []netip.Prefix{c}, Gone: true}, {Added: []netip.Prefix{b}}} {
		queue = Enqueue(queue, model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{"s": &change}})
	}
	var got []model.SetChange
	for _, ch := range queue {
		got = append(got, *ch.Sets["s"])
	}
	want := []model.SetChange{{Added: []netip.Prefix{a, c}, Removed: []netip.Prefix{b}, Gone: true}, {Added: []netip.Prefix{b}}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
		t.Error(diff)
	}
}

// Changes of sets that share lists add up to what each would alone.
func TestChangesThatShareListsAddUp(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("10.0.0.3/32")}
	before := []model.SetChange{{}, {Added: all}, {Removed: all[:2]}, {Added: all[:1], Removed: all[1:2]}, {Added: all[:2], Removed: all[2:]}}
	after := []model.SetChange{{}, {Added: all}, {Removed: all}, {Removed: all[:1]}, {Added: all[:2]}, {Added: all[1:2], Gone: true}, {Removed: all[:2], Gone: true}}
	together := [2]map[model.SetID]*model.SetChange{{}, {}}
	var queue []model.Changes
	for i := range before {
		for j := range after {
			id := model.SetID(fmt.Sprint(i, "-", j))
			together[0][id], together[1][id] = &before[i], &after[j]
		}
	}
	for _, sets := range together {
		queue = Enqueue(queue, model.Changes{InSync: true, Sets: sets})
	}
	for i := range before {
		for j := range after {
			id := model.SetID(fmt.Sprint(i, "-", j))
			var alone []model.Changes
			for _, c := range []*model.SetChange{&before[i], &after[j]} {
				alone = Enqueue(alone, model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{id: c}})
			}
			if diff := cmp.Diff(alone[0].Sets[id], queue[0].Sets[id], cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); diff != "" {
				t.Errorf("%v and then %v: %s", before[i], after[j], diff)
			}
		}
	}
}

// BenchmarkBackendsChangeWhileChangesWait has 100 sets of a Service come and go, and 100 others come, while no plan can be carried out.
func BenchmarkBackendsChangeWhileChangesWait(b *testing.B) {
	var members []netip.Prefix
	for i := range 1000 {
		members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
	}
	var turns [2]model.Changes
	for i := range turns {
		turns[i] = model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}}
		for port := range 100 {
			turns[i].Sets[model.SetID(fmt.Sprint(i, "-", port))] = &model.SetChange{Added: members}
			if i > 0 {
				turns[i].Sets[model.SetID(fmt.Sprint(0, "-", port))] = &model.SetChange{Removed: members, Gone: true}
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if queue := Enqueue(Enqueue(nil, turns[0]), turns[1]); len(queue) != 1 {
			b.Fatalf("%d changes wait", len(queue))
		}
	}
}
