package dataplane

import (
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
