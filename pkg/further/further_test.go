package further

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// The longest route decides, and the pod at its end must list the address.
func TestAFurtherSourceIsThePodsThatListsItAndHasTheRoute(t *testing.T) {
	prefix := netip.MustParsePrefix
	r := New([]Listed{
		{prefix("203.0.113.9/24"), "cali1"}, {prefix("203.0.113.0/24"), "cali2"}, {prefix("0.0.0.0/0"), "cali3"}, {prefix("2001:db8::/32"), "cali1"},
	}, []Route{
		{prefix("203.0.113.0/24"), "cali1"}, {prefix("203.0.113.0/24"), "cali3"}, {prefix("203.0.113.128/25"), "cali2"}, {prefix("203.0.113.200/32"), ""},
		{prefix("198.51.100.0/24"), "cali1"}, {prefix("192.0.2.0/24"), "cali3"}, {prefix("2001:db8:1::/48"), "cali1"}, {prefix("::/0"), "cali3"},
	})
	for addr, want := range map[string]string{
		"203.0.113.7": "cali1", "203.0.113.129": "cali2", "203.0.113.200": "", "198.51.100.1": "", "192.0.2.1": "cali3", "8.8.8.8": "",
		"2001:db8:1::7": "cali1", "2001:db8:2::7": "",
	} {
		if got := r.Interface(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
	if got := (*Routed)(nil).Interface(netip.MustParseAddr("203.0.113.7")); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	if got := r.Interface(netip.Addr{}); got != "" {
		t.Errorf("of no address: %q", got)
	}
}

func TestListsAreSortedWithoutRepetitions(t *testing.T) {
	one := func(p, iface string) Listed { return Listed{netip.MustParsePrefix(p), iface} }
	want := []Listed{one("0.0.0.0/0", "cali1"), one("203.0.113.0/24", "cali1"), one("203.0.113.0/25", "cali1"), one("::/0", "cali1"), one("10.0.0.0/8", "cali2")}
	for range 20 {
		list := append(slices.Clone(want), want[1], want[4])
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if got := Sorted(slices.Clone(list)); !slices.Equal(got, want) {
			t.Errorf("%v becomes %v, want %v", list, got, want)
		}
	}
}
