package classes

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestUnusedListsOfSetsAreSweptAway(t *testing.T) {
	c := New()
	p := netip.MustParsePrefix("10.0.0.1/32")
	for i := range uint32(10000) {
		c.Show(i + 1)
		c.Add(p, i+1)
		c.Remove(p, i)
		c.Diff()
		c.Drop()
		c.Reuse()
	}
	if n := len(c.lists.index); n > 1100 {
		t.Errorf("%d lists for one address", n)
	}
	if got := fmt.Sprint(c.Members(p.Addr())); got != "[10000]" {
		t.Errorf("in sets %s", got)
	}
}
