package dataplane

import (
	"errors"
	"net/netip"
	"testing"
)

// Of the refused addresses of a node only those count that the endpoint's rules tell apart, and of these only the ones in question.
func TestOnlyRefusedAddressesOfAnEndpointsKindsConcernIt(t *testing.T) {
	full := errors.New("full")
	refused := []RefusedAddr{
		{netip.MustParsePrefix("10.0.0.7/32"), full, 0},
		{netip.MustParsePrefix("10.0.1.0/24"), full, 1},
		{netip.MustParsePrefix("10.0.2.2/32"), full, 1},
	}
	for _, test := range []struct {
		kinds []bool
		addrs string // empty: of all
		want  string
	}{
		{nil, "", ""},
		{nil, "10.0.0.7", ""},
		{[]bool{false, false}, "", ""},
		{[]bool{true, false}, "", "10.0.0.7"},
		{[]bool{true, true}, "", "10.0.0.7"},
		{[]bool{true, true}, "10.0.0.8", ""},
		{[]bool{true, true}, "10.0.0.7", "10.0.0.7"},
		{[]bool{false, true}, "", "10.0.1.0/24"},
		{[]bool{false, true}, "10.0.0.7", ""},
		{[]bool{false, true}, "10.0.1.9", "10.0.1.0/24"},
		{[]bool{false, true}, "10.0.2.2", "10.0.2.2"},
	} {
		m := Misjudged{Refused: refused, Kinds: test.kinds}
		got, want := m.Text(), ""
		if test.addrs != "" {
			got = m.TextOf([]netip.Addr{netip.MustParseAddr("10.9.9.9"), netip.MustParseAddr(test.addrs)})
		}
		if test.want != "" {
			want = "its newest policy is not in force yet for " + test.want + ": full"
		}
		if got != want {
			t.Errorf("kinds %v, addresses %q: %q, want %q", test.kinds, test.addrs, got, want)
		}
	}
}
