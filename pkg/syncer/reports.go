package syncer

import (
	"maps"
	"slices"
	"sync"

	"github.com/margay-project/margay/pkg/validate"
)

// Reports are what the stream of a source has said so far of problems and kinds. Safe for concurrent use.
type Reports struct {
	mu       sync.Mutex
	begun    bool
	problems map[string][]validate.Problem // by subject
	kinds    []KindStatus                  // in the order in which they came
}

// NewReports returns the reports of a stream that has not begun.
func NewReports() *Reports { return &Reports{problems: map[string][]validate.Problem{}} }

// Note takes in a part of the stream. Its states of kinds hold once the updates of the same part are applied, so hand those on first.
func (r *Reports) Note(b Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun = true
	for _, f := range b.Problems {
		if len(f.Problems) == 0 {
			delete(r.problems, f.Subject)
		} else {
			r.problems[f.Subject] = f.Problems
		}
	}
	for _, k := range b.Kinds {
		if i := slices.IndexFunc(r.kinds, func(old KindStatus) bool { return old.Kind == k.Kind }); i >= 0 {
			r.kinds[i] = k
		} else {
			r.kinds = append(r.kinds, k)
		}
	}
}

// Problems returns the present problems of objects. The slice is the caller's.
func (r *Reports) Problems() []validate.Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []validate.Problem
	for _, subject := range slices.Sorted(maps.Keys(r.problems)) {
		all = append(all, r.problems[subject]...)
	}
	return all
}

// Kinds returns the state of each kind of object, in a fixed order. The slice is the caller's. Before the stream begins
// it has one kind that stands for all and has not been listed.
func (r *Reports) Kinds() []KindStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun {
		return []KindStatus{{Kind: "datastore", State: KindListing, Required: true}}
	}
	return slices.Clone(r.kinds)
}

// Difference returns the findings that turn was into now, by subject, so that a source need only know its present
// problems.
func Difference(was, now map[string][]validate.Problem) []Findings {
	var all []Findings
	for subject, problems := range was {
		if len(problems) > 0 && len(now[subject]) == 0 {
			all = append(all, Findings{Subject: subject})
		}
	}
	for subject, problems := range now {
		if len(problems) > 0 && !slices.Equal(was[subject], problems) {
			all = append(all, Findings{Subject: subject, Problems: problems})
		}
	}
	return all
}
