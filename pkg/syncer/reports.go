package syncer

import (
	"iter"
	"slices"
	"strings"
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

// Problems returns the present problems of objects, in the order of subjects. The slice is the caller's. Tenants may have made a million
// of them, which takes seconds: not for a loop that others wait for.
func (r *Reports) Problems() []validate.Problem {
	var all []validate.Problem
	findings := r.findings()
	slices.SortFunc(findings, func(a, b Findings) int { return strings.Compare(a.Subject, b.Subject) })
	for _, f := range findings {
		all = append(all, f.Problems...)
	}
	return all
}

// All yields the present problems of objects, those of a subject together, in no order. It copies none.
func (r *Reports) All() iter.Seq[validate.Problem] {
	return func(yield func(validate.Problem) bool) {
		for _, f := range r.findings() {
			for _, p := range f.Problems {
				if !yield(p) {
					return
				}
			}
		}
	}
}

func (r *Reports) findings() []Findings {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Findings, 0, len(r.problems))
	for subject, problems := range r.problems {
		all = append(all, Findings{subject, problems})
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
