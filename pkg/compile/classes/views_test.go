package classes_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// After every round of changes, each question about prefixes has the answer that a list of them gives, and no prefix is kept that
// nothing needs: what has left and is kept is memory that a tenant can make more of.
func TestPrefixesAreFoundAndForgotten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m, kernel := classes.New(), newMembers(), policytest.Entries{}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "edits") {
				m.edit(t, c)
			}
			m.unmark(t, c)
			c.Reuse()
			for _, mv := range c.Diff() {
				kernel.Write(mv.AddrChange)
			}
			c.Drop()
			checkViews(t, c, m, kernel)
			if got, want := c.Nodes(), m.nodes(kernel); got != want {
				t.Fatalf("%d prefixes and joints are kept, %d are needed", got, want)
			}
		}
	})
}

// unmark removes marks from all prefixes, or from one.
func (m *members) unmark(t *rapid.T, c *classes.Classes) {
	const marks = classes.MarkService | classes.MarkNode | classes.MarkHost
	all := m.known(nil)
	switch {
	case len(all) > 0 && rapid.Bool().Draw(t, "unmark one"):
		all = []netip.Prefix{rapid.SampledFrom(all).Draw(t, "unmarked")}
		c.Mark(all[0], marks, false)
	case rapid.Bool().Draw(t, "unmark all"):
		c.Unmark(marks)
	default:
		return
	}
	for _, p := range all {
		m.marks[p] &^= marks
	}
}

func checkViews(t *rapid.T, c *classes.Classes, m *members, kernel policytest.Entries) {
	p := nested(t, "looked at")
	if got, want := c.Members(p.Addr()), m.all(p.Addr()); !slices.Equal(got, want) {
		t.Fatalf("%v is a member of %v, want %v", p.Addr(), got, want)
	}
	inside := map[netip.Prefix]bool{}
	for _, q := range m.known(kernel) {
		if p.Bits() < q.Bits() && p.Contains(q.Addr()) {
			inside[q] = true
		}
	}
	most := rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "most")
	got := c.Inside(p, most)
	if len(got) != min(most, len(inside)) || slices.ContainsFunc(got, func(q netip.Prefix) bool { return !inside[q] }) {
		t.Fatalf("inside of %v are %v, want %d of %v", p, got, most, inside)
	}
	missing := map[netip.Prefix]bool{}
	rest := kernel.Clone()
	for q := range kernel {
		if q.Bits() >= p.Bits() || rapid.Bool().Draw(t, "missing") {
			missing[q] = true
			delete(rest, q)
		}
	}
	if got, want := c.Around(p, func(q netip.Prefix) bool { return missing[q] }), rest.Lookup(p.Addr()).Class; got != want {
		t.Fatalf("around %v without %v is class %d, want %d", p, missing, got, want)
	}
}

// all returns the sets that an address is in, shown or not.
func (m *members) all(a netip.Addr) (all []uint32) {
	for p, sets := range m.in {
		for s := range sets {
			if p.Contains(a) {
				all = append(all, s)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// known returns the prefixes that are members of sets or marked, or have entries.
func (m *members) known(kernel policytest.Entries) (all []netip.Prefix) {
	for p, sets := range m.in {
		if len(sets) > 0 {
			all = append(all, p)
		}
	}
	for p, marks := range m.marks {
		if marks != 0 {
			all = append(all, p)
		}
	}
	for p := range kernel {
		all = append(all, p)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// nodes is how many prefixes have to be kept: the known ones, those in which two of them part, and the two that contain all.
func (m *members) nodes(kernel policytest.Entries) int {
	needed := map[netip.Prefix]bool{netip.PrefixFrom(netip.IPv4Unspecified(), 0): true, netip.PrefixFrom(netip.IPv6Unspecified(), 0): true}
	known := m.known(kernel)
	for _, p := range known {
		needed[p] = true
		for _, q := range known {
			n := min(p.Bits(), q.Bits())
			for n > 0 && p.Addr().BitLen() == q.Addr().BitLen() && !netip.PrefixFrom(p.Addr(), n).Contains(q.Addr()) {
				n--
			}
			if shared, _ := p.Addr().Prefix(n); p.Addr().BitLen() == q.Addr().BitLen() {
				needed[shared] = true
			}
		}
	}
	return len(needed)
}
