package validate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Ref says which object is meant, and where it is written. Fields that are not known are empty.
type Ref struct {
	File string // as given to Parse; empty for objects of a cluster
	Line int    // counted from 1 within File; 0 if there is none
	// Kind is the kind's name, with its group where the name alone would mean another kind that Margay reads:
	// "NetworkPolicy.projectcalico.org". Namespace is empty for cluster-wide kinds.
	Kind, Namespace, Name string
}

// String returns "dir/a.yaml:12: NetworkPolicy shop/db", without the parts that are not known.
func (r Ref) String() string {
	var b strings.Builder
	if r.File != "" {
		b.WriteString(r.File)
		if r.Line > 0 {
			b.WriteString(":" + strconv.Itoa(r.Line))
		}
	}
	object := clip(r.Name)
	if r.Namespace != "" {
		object = clip(r.Namespace) + "/" + object
	}
	object = strings.TrimSpace(clip(r.Kind) + " " + object)
	if b.Len() > 0 && object != "" {
		b.WriteString(": ")
	}
	b.WriteString(object)
	return selector.Printable(b.String())
}

// Severity says what a Problem does to its object. A higher value is worse.
type Severity uint8

const (
	// Warning: the object is used as a whole, and part of it is odd or means nothing here; or it is no policy, and of a
	// kind that is not read.
	Warning Severity = iota + 1
	// RulesLeftOut: the object is used without the rules that could not be read (semantics D-7).
	RulesLeftOut
	// Rejected: the object is not used, though somebody relies on it. If an earlier version of it was valid, that one stays in force (D-1).
	Rejected
)

// String returns "warning", "rules left out" or "rejected".
func (s Severity) String() string {
	switch s {
	case Warning:
		return "warning"
	case RulesLeftOut:
		return "rules left out"
	case Rejected:
		return "rejected"
	}
	return "severity " + strconv.Itoa(int(s))
}

// Problem is one thing that is wrong with one object.
type Problem struct {
	Ref      Ref // Line is the line of Field, or of the nearest thing around it that has one
	Severity Severity
	Field    string // path in the object, such as "spec.ingress[0].from[1].ipBlock.cidr"; empty: the object itself
	Reason   string // one line, bounded
}

// String is one line that names file, line, object, severity, field and reason.
func (p Problem) String() string {
	parts := []string{p.Severity.String(), p.Field, p.Reason}
	if ref := p.Ref.String(); ref != "" {
		parts = append([]string{ref}, parts...)
	}
	return selector.Printable(strings.Join(without(parts, ""), ": "))
}

// Document is one object of a file, or the place where one should be.
type Document struct {
	// Ref names the object. When the text could not be read Kind and Name may be empty: it is not known which object was
	// meant, so none that the file gave before may be taken for deleted.
	Ref     Ref
	Updates []model.Update // what to send; empty unless OK
	// Problems are in the order of their lines.
	Problems []Problem
	OK       bool // false: there is no usable object here
}

// These keep the report of one object readable, whatever was in it.
const (
	maxProblems = 20
	maxTextLen  = 500 // bytes of a field, a reason or a name
)

// Report collects the problems of one object while it is converted. Its size is bounded, whatever is in the object.
type Report struct {
	ref      Ref
	problems []Problem
	worst    Severity
	dropped  int // problems beyond maxProblems
}

// NewReport makes an empty report of the object that ref names.
func NewReport(ref Ref) *Report { return &Report{ref: ref} }

// Add adds one problem with the field at path; empty: with the object itself. The reason may quote the object: it
// becomes one line of bounded length.
func (r *Report) Add(s Severity, path, format string, args ...any) {
	r.worst = max(r.worst, s)
	if len(r.problems) >= maxProblems {
		r.dropped++
		return
	}
	reason := clip(selector.Printable(fmt.Sprintf(format, args...)))
	r.problems = append(r.problems, Problem{Ref: r.ref, Severity: s, Field: clip(path), Reason: reason})
}

// Reject adds errors of the API's own validation, as Rejected.
func (r *Report) Reject(errs field.ErrorList) {
	for _, e := range errs {
		r.Add(Rejected, e.Field, "%s", e.ErrorBody())
	}
}

// OK reports whether the object is usable: nothing that was added is Rejected.
func (r *Report) OK() bool { return r.worst < Rejected }

// Done returns the problems, the last of them counting those that found no room.
func (r *Report) Done() []Problem {
	if r.dropped > 0 {
		n := r.dropped
		r.dropped = 0
		r.problems = append(r.problems, Problem{Ref: r.ref, Severity: r.worst, Reason: fmt.Sprintf("%d more problems like these", n)})
	}
	r.problems = slices.Clone(r.problems) // as large as they need: sources keep the problems of every object
	return r.problems
}

func clip(s string) string {
	if len(s) <= maxTextLen {
		return s
	}
	return strings.ToValidUTF8(s[:maxTextLen], "") + "..."
}

func without(list []string, unwanted string) []string {
	var kept []string
	for _, s := range list {
		if s != unwanted {
			kept = append(kept, s)
		}
	}
	return kept
}
