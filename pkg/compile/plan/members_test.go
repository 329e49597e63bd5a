package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
)

// Members of very many sets whose lists overlap are those that the changes say, one after the other.
func TestListsThatOverlapAreChangedAsEachAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := New(Options{}, nil)
		sets := rapid.IntRange(fewParts/2, 3*fewParts).Draw(t, "sets")
		in := make([]map[netip.Prefix]bool, sets)
		for range 4 {
			ch := map[model.SetID]*model.SetChange{}
			for s := range sets {
				if in[s] == nil {
					in[s] = map[netip.Prefix]bool{}
				}
				change := &model.SetChange{}
				for i := range uint32(6) {
					p := benchPod(int(i))
					switch was := in[s][p]; {
					case rapid.IntRange(0, 2).Draw(t, "changes") > 0:
					case was:
						change.Removed = append(change.Removed, p)
						delete(in[s], p)
					default:
						change.Added = append(change.Added, p)
						in[s][p] = true
					}
				}
				ch[setID(s)] = change
			}
			c.Update(model.Changes{Sets: ch})
			for i := range 6 {
				p := benchPod(i)
				var want []model.SetID
				for s := range sets {
					if in[s][p] {
						want = append(want, setID(s))
					}
				}
				if got := slices.Sorted(slices.Values(c.Address(p.Addr()).Sets)); !slices.Equal(got, want) {
					t.Fatalf("%s is in %v, want %v", p, got, want)
				}
			}
		}
	})
}

func setID(i int) model.SetID { return model.SetID(fmt.Sprintf("s%02d", i)) }

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
