package flows

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Staged is what staged policies would have decided, where that is another verdict.
type Staged struct {
	Verdict string `json:"verdict"` // Allow or Deny
	Policy  string `json:"policy"`  // the staged one to which it is due: tier/kind/namespace/name
	Rule    string `json:"rule"`    // that policy with "#ingress[0]", "#end-of-tier", "#denied behind it" or "#allowed behind it"
}

// Limits of Examples: records of each staged policy and direction, and policies and directions.
const (
	ExamplesOfPolicy = 10
	examplePolicies  = 1024
)

// Examples keep the latest records with a staged verdict, by staged policy and direction. The zero value is empty. Safe for
// concurrent use.
type Examples struct {
	mu sync.Mutex
	by map[exampleKey][]*Record
}

type exampleKey struct{ policy, direction string }

// note keeps those of the records that have a staged verdict.
func (e *Examples) note(records []*Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range records {
		if r.Staged == nil {
			continue
		}
		key := exampleKey{r.Staged.Policy, r.Direction}
		if e.by == nil {
			e.by = map[exampleKey][]*Record{}
		}
		if _, known := e.by[key]; !known && len(e.by) >= examplePolicies {
			delete(e.by, e.oldest())
		}
		list := append(e.by[key], r)
		e.by[key] = slices.Clone(list[max(0, len(list)-ExamplesOfPolicy):])
	}
}

// oldest is the key whose latest record is the oldest.
func (e *Examples) oldest() exampleKey {
	return slices.MinFunc(slices.Collect(maps.Keys(e.by)), func(a, b exampleKey) int {
		x, y := e.by[a], e.by[b]
		return cmp.Or(x[len(x)-1].Time.Compare(y[len(y)-1].Time), strings.Compare(a.policy, b.policy))
	})
}

// Of are the latest records of a staged policy and direction, the oldest first.
func (e *Examples) Of(policy, direction string) []*Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.by[exampleKey{policy, direction}])
}
