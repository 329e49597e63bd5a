package classes_test

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// change makes prefixes members of sets and takes them out of others, at once.
func (m *members) change(t *rapid.T, c *classes.Classes) {
	var prefixes []netip.Prefix
	for range rapid.IntRange(1, 4).Draw(t, "prefixes") {
		prefixes = append(prefixes, nested(t, "of many"))
	}
	var join, leave []uint32
	for set := range uint32(5) {
		switch rapid.IntRange(0, 2).Draw(t, "set changes") {
		case 1:
			join = append(join, 1+set)
		case 2:
			leave = append(leave, 1+set)
		}
	}
	c.Change(prefixes, join, leave)
	for _, p := range prefixes {
		if m.in[p] == nil {
			m.in[p] = map[uint32]bool{}
		}
		for _, set := range join {
			m.in[p][set] = true
		}
		for _, set := range leave {
			delete(m.in[p], set)
		}
	}
}

func TestPrefixesThatLeaveAtOnceAreForgotten(t *testing.T) {
	c := classes.New()
	before := c.Nodes()
	all := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.2/32"), netip.MustParsePrefix("fd00::/64")}
	c.Change(all, []uint32{1, 2}, nil)
	c.Diff()
	c.Change(all, nil, []uint32{1, 2, 3})
	if c.Diff(); c.Nodes() != before {
		t.Errorf("%d nodes are left, %d were there before", c.Nodes(), before)
	}
}

// What changes at once is looked at again on local sides as what changes alone.
func TestLocalAddressesThatChangeAtOnceAreNoted(t *testing.T) {
	host, net := netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("10.0.0.0/24")
	c := classes.New()
	c.Own(host, model.WorkloadID("a", "p"))
	for _, test := range []struct {
		what        string
		prefixes    []netip.Prefix
		join, leave []uint32
		some        bool
		all         bool
	}{
		{"joins", []netip.Prefix{host}, []uint32{1, 2}, nil, true, false},
		{"is in them", []netip.Prefix{host}, []uint32{1, 2}, []uint32{3}, false, false},
		{"leaves", []netip.Prefix{host}, nil, []uint32{2}, true, false},
		{"one that is not local", []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, []uint32{1}, nil, false, false},
		{"one that others are inside", []netip.Prefix{net}, []uint32{1}, nil, false, true},
	} {
		c.Change(test.prefixes, test.join, test.leave)
		if some, all := c.Local(); (len(some) > 0) != test.some || all != test.all {
			t.Errorf("%s: %v, %v", test.what, some, all)
		}
	}
}

// Thin takes as many members out of a set as it may, wherever they are, and leaves those of other sets alone.
func TestThinTakesMembersOutInParts(t *testing.T) {
	c := classes.New()
	for i := range 100 {
		for _, text := range []string{"10.0.0.%d/32", "fd00::%x/128"} {
			p := netip.MustParsePrefix(fmt.Sprintf(text, i))
			c.Add(p, 7)
			c.Add(p, 8)
		}
	}
	var at classes.Place
	for left := 200; left > 0; {
		at = c.Thin(7, at, 30)
		left = max(0, left-30)
		if n := c.Size(7); n != left {
			t.Fatalf("%d members, want %d", n, left)
		}
	}
	if n := c.Size(8); n != 200 {
		t.Errorf("%d members of the other set", n)
	}
	if sets := c.Members(netip.MustParseAddr("10.0.0.7")); len(sets) != 1 || sets[0] != 8 {
		t.Errorf("10.0.0.7 is in %v", sets)
	}
}
