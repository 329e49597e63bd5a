package calc

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/testutil"
)

func TestMembersAreSortedAsPrefixesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m members
		for _, p := range drawNets(t, 60) {
			m.add(p.Masked(), 1)
		}
		for _, a := range rapid.SliceOfN(rapid.Uint32(), 0, 20).Draw(t, "addresses") {
			p, _ := netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}).Prefix(int(a % 33))
			m.add(p, 1)
		}
		want := slices.SortedFunc(m.all(), comparePrefixes)
		if got := m.sorted(); !slices.Equal(got, want) {
			t.Fatalf("sorted %v, want %v", got, want)
		}
	})
}

// A policy with selectors for a tenant's largest network set comes and goes, and each time its sets are sorted.
func TestAddressesAreSortedFasterThanPrefixes(t *testing.T) {
	const many, most = 1 << 16, 2
	for _, bits := range []int{32, 31} {
		var m members
		for i := range many {
			p, _ := netip.AddrFrom4([4]byte{11, byte(i >> 15), byte(i >> 7), byte(i << 1)}).Prefix(bits)
			m.add(p, 1)
		}
		fast := testutil.LeastCPUTime(t, func() { m.sorted() })
		slow := testutil.LeastCPUTime(t, func() { _ = slices.SortedFunc(m.all(), comparePrefixes) })
		t.Logf("/%d: %s, and %s as prefixes", bits, fast, slow)
		if most*fast > slow {
			t.Errorf("/%d: sorting takes %s, and %s as prefixes", bits, fast, slow)
		}
	}
}
