package plan

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// Sets whose changes share a list, or a part of its memory, each have their own members.
func TestSetsThatShareListsHaveTheirOwnMembers(t *testing.T) {
	c := New(Options{}, nil)
	all := []netip.Prefix{benchPod(1), benchPod(2), benchPod(3), benchPod(4)}
	for _, ch := range []map[model.SetID]*model.SetChange{
		{"a": {Added: all[:2]}, "b": {Added: all}, "c": {Added: all[1:]}, "d": {}},
		{"a": {Removed: all[:1]}, "b": {Removed: all[:2]}, "d": {Added: all[:2]}, "c": {Removed: all[2:], Gone: true}},
	} {
		c.Update(model.Changes{Sets: ch})
	}
	for i, want := range [][]model.SetID{{"d"}, {"a", "c", "d"}, {"b"}, {"b"}} {
		got := slices.Sorted(slices.Values(c.Address(all[i].Addr()).Sets))
		if !slices.Equal(got, want) {
			t.Errorf("%s is in %v, want %v", all[i], got, want)
		}
	}
}
