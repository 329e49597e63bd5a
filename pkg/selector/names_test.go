package selector

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLabelNamesAreAllThatDecide(t *testing.T) {
	for text, want := range map[string][]string{
		"all()":    nil,
		"global()": {NamespaceLabel},
		`!has(a) || (b == "x" && !(c not in {"y"})) || d starts with "z"`: {"a", "b", "c", "d"},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		s.LabelNames(names)
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(names))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
