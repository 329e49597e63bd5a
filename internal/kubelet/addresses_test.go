package kubelet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoolGivesFreshAddressesAndThenThoseFreeForLongest(t *testing.T) {
	p := newPool([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/29"), netip.MustParsePrefix("fd00::/64")})
	var taken [][]netip.Addr
	for {
		a, err := p.allocate()
		if err != nil {
			break
		}
		taken = append(taken, a)
	}
	if len(taken) != 5 || taken[0][0] != netip.MustParseAddr("10.0.0.2") || taken[4][1] != netip.MustParseAddr("fd00::6") {
		t.Fatalf("a /29 gave %v, want 10.0.0.2 to .6 with fd00::2 to ::6", taken)
	}
	p.give(taken[3])
	p.give([]netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::9")}) // chosen by a test
	p.give(taken[1])
	for _, want := range [][]netip.Addr{taken[3], taken[1]} {
		got, err := p.allocate()
		if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); err != nil || d != "" {
			t.Errorf("take again: %v, %s", err, d)
		}
	}
	if got, err := p.allocate(); err == nil {
		t.Errorf("took %v, which nobody gave back", got)
	}
}
