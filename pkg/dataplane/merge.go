package dataplane

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Enqueue adds changes to those that wait to be compiled. They are merged into the last ones, so that the queue stays
// short while the kernel refuses writes. Only a set that went and came back cannot be merged: as a difference it starts
// from nothing again. Neither argument may be used afterwards, except for the maps and slices of ch.
func Enqueue(queue []model.Changes, ch model.Changes) []model.Changes {
	if !ch.InSync {
		return queue
	}
	if len(queue) == 0 || returns(queue[len(queue)-1].Sets, ch.Sets) {
		return append(queue, model.Changes{Endpoints: clone(ch.Endpoints), Sets: clone(ch.Sets), InSync: true})
	}
	last := queue[len(queue)-1]
	maps.Copy(last.Endpoints, ch.Endpoints)
	known := sums{}
	for id, change := range ch.Sets {
		before, had := last.Sets[id]
		if had {
			change = known.of(before, change)
		}
		last.Sets[id] = change
	}
	return queue
}

func clone[K comparable, V any](m map[K]V) map[K]V {
	c := make(map[K]V, len(m))
	maps.Copy(c, m)
	return c
}

// returns reports whether a set that is gone in before is there again in after.
func returns(before, after map[model.SetID]*model.SetChange) bool {
	for id, change := range after {
		if was, had := before[id]; had && was.Gone && !change.Gone {
			return true
		}
	}
	return false
}

// sums are changes added up, by the lists of both: Added and Removed. The sets of a Service share theirs, and what they add up to.
type sums map[[4]model.ListKey]sum

type sum struct{ added, removed []netip.Prefix }

// of is one change that has the effect of before and then after.
func (s sums) of(before, after *model.SetChange) *model.SetChange {
	key := [4]model.ListKey{model.ListKeyOf(before.Added), model.ListKeyOf(before.Removed), model.ListKeyOf(after.Added), model.ListKeyOf(after.Removed)}
	total, ok := s[key]
	if !ok {
		total = addUp(before, after)
		s[key] = total
	}
	return &model.SetChange{Added: total.added, Removed: total.removed, Gone: after.Gone}
}

func addUp(before, after *model.SetChange) sum {
	added, removed := map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	for _, p := range before.Added {
		added[p] = true
	}
	for _, p := range before.Removed {
		removed[p] = true
	}
	for _, p := range after.Removed {
		if added[p] {
			delete(added, p)
		} else {
			removed[p] = true
		}
	}
	for _, p := range after.Added {
		if removed[p] {
			delete(removed, p)
		} else {
			added[p] = true
		}
	}
	return sum{keys(added), keys(removed)}
}

func keys(m map[netip.Prefix]bool) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(m))
	for p := range m {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	return list
}
