package syncer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/validate"
)

// Nothing is known of a stream that has not begun, which is no reason to be ready.
func TestAStreamThatHasNotBegunIsNotListed(t *testing.T) {
	r := NewReports()
	if k := r.Kinds(); len(k) != 1 || k[0].Listed || !k[0].Required {
		t.Errorf("before: %v", k)
	}
	r.Note(Batch{})
	if k := r.Kinds(); len(k) != 0 {
		t.Errorf("a stream without kinds: %v", k)
	}
}

func TestKindsKeepTheOrderInWhichTheyCame(t *testing.T) {
	r := NewReports()
	r.Note(Batch{Kinds: []KindStatus{{Kind: "Pod"}, {Kind: "Node"}}})
	r.Note(Batch{Kinds: []KindStatus{{Kind: "Node", Objects: 2}}})
	r.Note(Batch{Kinds: []KindStatus{{Kind: "Pod", Objects: 1}}})
	if got := r.Kinds(); !slices.Equal(got, []KindStatus{{Kind: "Pod", Objects: 1}, {Kind: "Node", Objects: 2}}) {
		t.Errorf("%v", got)
	}
}

// Whatever goes wrong and is mended: who has noted the differences knows what is wrong, in the order of subjects, and what
// is as it was is not said again.
func TestDifferencesAmountToWhatIsWrong(t *testing.T) {
	subjects := rapid.SampledFrom([]string{"a", "b", "c"})
	problems := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) validate.Problem {
		return validate.Problem{Severity: validate.Rejected, Reason: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "reason")}
	}), 0, 2)
	rapid.Check(t, func(t *rapid.T) {
		r, was := NewReports(), map[string][]validate.Problem{}
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			now := rapid.MapOfN(subjects, problems, 0, 3).Draw(t, "now")
			r.Note(Batch{Problems: Difference(was, now)})
			if again := Difference(now, now); len(again) != 0 {
				t.Fatalf("of no change: %v", again)
			}
			var want []validate.Problem
			for _, s := range []string{"a", "b", "c"} {
				want = append(want, now[s]...)
			}
			if got := r.Problems(); !slices.Equal(got, want) {
				t.Fatalf("%v, want %v", got, want)
			}
			was = now
		}
	})
}
