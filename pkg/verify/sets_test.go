package verify

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func TestNumberedSetsAreSortedAndHaveTheMembersOfPolicies(t *testing.T) {
	list := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	used := map[model.SetID][]netip.Prefix{"nets": list}
	got := NumberedSets(map[uint32]model.SetID{9: "pods", 2: "nets", 5: "services"}, slices.Values([]map[model.SetID][]netip.Prefix{nil, used, used}))
	want := []Set{{2, "nets", list}, {5, "services", nil}, {9, "pods", nil}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
