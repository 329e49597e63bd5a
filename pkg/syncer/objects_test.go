package syncer

import (
	"cmp"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/validate"
)

// An object has the versions of a step, one letter each: g is valid, w valid with a warning, b is not valid, - is none.
func TestObjectsKeepTheLastGoodVersion(t *testing.T) {
	warning := validate.Problem{Ref: validate.Ref{Kind: "Tier", Name: "x"}, Severity: validate.Warning, Reason: "odd"}
	bad := validate.Problem{Ref: validate.Ref{Kind: "Tier", Name: "x"}, Severity: validate.Rejected, Reason: "bad"}
	stays := bad
	stays.Reason = "bad; the last good version stays in force"
	for _, tt := range []struct {
		versions string
		inForce  bool
		known    bool
		want     []validate.Problem
	}{
		{"", false, false, nil},
		{"g", true, true, nil},
		{"w", true, true, []validate.Problem{warning}},
		{"b", false, true, []validate.Problem{warning, bad}},
		{"bb", false, true, []validate.Problem{warning, bad}},
		{"gb", true, true, []validate.Problem{warning, stays}},
		{"wb", true, true, []validate.Problem{warning, stays}},
		{"gbb", true, true, []validate.Problem{warning, stays}},
		{"bg", true, true, nil},
		{"gbg", true, true, nil},
		{"gb-", false, false, nil},
		{"g-b", false, true, []validate.Problem{warning, bad}},
	} {
		o := NewObjects[string, int]()
		o.Accept("other", 0, nil)
		for i, version := range tt.versions {
			switch version {
			case 'g':
				o.Accept("x", i, nil)
			case 'w':
				o.Accept("x", i, []validate.Problem{warning})
			case 'b':
				o.Reject("x", i, []validate.Problem{warning, bad})
			case '-':
				o.Remove("x")
			}
		}
		o.Shrink()
		v, known := o.Get("x")
		if known != tt.known || known && v != len(tt.versions)-1 || o.InForce("x") != tt.inForce {
			t.Errorf("%q: %d known %t, in force %t", tt.versions, v, known, o.InForce("x"))
		}
		want := [2]int{1, 1}
		if tt.known {
			want[0]++
		}
		if tt.inForce {
			want[1]++
		}
		if got := [2]int{o.Len(), o.LenInForce()}; got != want {
			t.Errorf("%q: %d objects, of which %d in force, want %d", tt.versions, got[0], got[1], want)
		}
		if diff := gocmp.Diff(tt.want, o.Problems(cmp.Compare)); diff != "" {
			t.Errorf("%q: problems (-want +got):\n%s", tt.versions, diff)
		}
		if o.Remove("x"); len(o.known) != 1 || len(o.faulted) != 0 {
			t.Errorf("%q: when it is gone, %d objects and %d faults", tt.versions, len(o.known), len(o.faulted))
		}
	}
}
