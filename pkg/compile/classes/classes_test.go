package classes_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
)

// members is a naive account of sets: a prefix -> the sets it is in, and its marks.
type members struct {
	in    map[netip.Prefix]map[uint32]bool
	marks map[netip.Prefix]classes.Marks
	shown map[uint32]bool
}

func newMembers() *members {
	return &members{map[netip.Prefix]map[uint32]bool{}, map[netip.Prefix]classes.Marks{}, map[uint32]bool{}}
}

func (m *members) sets(a netip.Addr) []uint32 {
	var all []uint32
	for p, sets := range m.in {
		for s := range sets {
			if p.Contains(a) && m.shown[s] {
				all = append(all, s)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (m *members) flags(a netip.Addr) classes.AddrFlags {
	var all classes.Marks
	for p, mk := range m.marks {
		switch {
		case p.IsSingleIP() && p.Addr() == a:
			all |= mk
		case p.Contains(a):
			all |= mk &^ classes.MarkEndpoint
		}
	}
	return all.Flags()
}

// nested draws prefixes that contain one another often.
func nested(t *rapid.T, label string) netip.Prefix {
	if rapid.Bool().Draw(t, label+" v6") {
		a := netip.AddrFrom16([16]byte{0: 0x20, 7: rapid.Byte().Draw(t, label) & 3, 15: rapid.Byte().Draw(t, label) & 3})
		p, _ := a.Prefix(rapid.SampledFrom([]int{0, 3, 62, 63, 64, 65, 126, 127, 128, 128, 128}).Draw(t, label+" bits"))
		return p
	}
	a := netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(t, label) & 3, rapid.Byte().Draw(t, label) & 3})
	p, _ := a.Prefix(rapid.SampledFrom([]int{0, 8, 22, 23, 24, 30, 31, 32, 32, 32}).Draw(t, label+" bits"))
	return p
}

func inside(t *rapid.T, all []netip.Prefix) netip.Addr {
	p := nested(t, "probe")
	if len(all) > 0 && rapid.Bool().Draw(t, "known") {
		p = rapid.SampledFrom(all).Draw(t, "in")
	}
	return p.Addr()
}

// edit makes one random change to both accounts, often of a prefix that they have.
func (m *members) edit(t *rapid.T, c *classes.Classes) {
	p, set := nested(t, "prefix"), uint32(rapid.IntRange(1, 5).Draw(t, "set"))
	if known := m.known(nil); len(known) > 0 && rapid.Bool().Draw(t, "again") {
		p = rapid.SampledFrom(known).Draw(t, "known prefix")
	}
	switch rapid.IntRange(0, 9).Draw(t, "edit") {
	case 0, 1, 2:
		c.Add(p, set)
		if m.in[p] == nil {
			m.in[p] = map[uint32]bool{}
		}
		m.in[p][set] = true
	case 3, 4:
		c.Remove(p, set)
		delete(m.in[p], set)
	case 5:
		mk := rapid.SampledFrom([]classes.Marks{classes.MarkService, classes.MarkNode, classes.MarkHost}).Draw(t, "mark")
		on := rapid.Bool().Draw(t, "on")
		c.Mark(p, mk, on)
		m.marks[p] |= mk
		if !on {
			m.marks[p] &^= mk
		}
	case 6:
		m.shown[set] = !m.shown[set]
		if m.shown[set] {
			c.Show(set)
		} else {
			c.Hide(set)
		}
	case 7:
		c.Empty(set)
		for _, sets := range m.in {
			delete(sets, set)
		}
	case 8:
		c.Sweep(rapid.IntRange(0, 3).Draw(t, "swept"))
	case 9:
		m.change(t, c)
	}
}

func TestEveryAddressGoesFromItsOldClassToItsNewOneInOneWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m, kernel := classes.New(), newMembers(), policytest.Entries{}
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			for range rapid.IntRange(1, 8).Draw(t, "edits") {
				m.edit(t, c)
			}
			c.Reuse()
			checkDiff(t, c, m, kernel)
		}
	})
}

// Of entries that contain one another, and come or go together, none shows on its way what it hid, or was hidden by.
func TestEntriesInsideOneAnotherComeAndGoInOrder(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.0/32")}
	rapid.Check(t, func(t *rapid.T) {
		c, m, kernel := classes.New(), newMembers(), policytest.Entries{}
		order := func(label string) []netip.Prefix { return rapid.Permutation(nets).Draw(t, label) }
		for i, p := range order("added") {
			set := uint32(1 + i)
			c.Show(set)
			c.Add(p, set)
			m.in[p], m.shown[set] = map[uint32]bool{set: true}, true
		}
		checkDiff(t, c, m, kernel)
		for _, p := range order("removed")[:rapid.IntRange(1, len(nets)).Draw(t, "how many go")] {
			for set := range m.in[p] {
				c.Remove(p, set)
			}
			delete(m.in, p)
		}
		checkDiff(t, c, m, kernel)
	})
}

func checkDiff(t *rapid.T, c *classes.Classes, m *members, kernel policytest.Entries) {
	old, before := kernel.Clone(), map[uint32]classes.Class{}
	for class := range c.All().All() {
		before[class.ID] = class
	}
	moves := c.Diff()
	for _, class := range c.Created() {
		if _, ok := before[class.ID]; ok {
			t.Fatalf("class %d is made again", class.ID)
		}
	}
	var all []netip.Prefix
	for _, mv := range moves {
		all = append(all, mv.Prefix)
	}
	probes := make([]netip.Addr, 20)
	for i := range probes {
		probes[i] = inside(t, all)
	}
	final := old.Clone()
	for _, mv := range moves {
		final.Write(mv.AddrChange)
	}
	writeMoves(t, moves, kernel, old, final, probes)
	for _, a := range probes {
		checkAddress(t, c, m, kernel, a)
		from, to := old.Lookup(a).Class, kernel.Lookup(a).Class
		told := func(mv classes.Move) bool { return mv.From == from && mv.To == to && mv.Prefix.Contains(a) }
		if from != to && !slices.ContainsFunc(moves, told) {
			t.Fatalf("%v went from class %d to %d, which none of the moves %v says", a, from, to, moves)
		}
	}
	c.Drop()
	used := map[uint32]bool{classes.None4: true, classes.None6: true}
	for _, e := range kernel {
		used[e.Class] = true
	}
	for class := range c.All().All() {
		if !used[class.ID] {
			t.Fatalf("class %v has no entries and was not dropped", class)
		}
		delete(used, class.ID)
	}
	if len(used) > 0 {
		t.Fatalf("entries have classes that do not exist: %v", used)
	}
}

// writeMoves writes them, and checks after each that every address has its old class or its new one.
func writeMoves(t *rapid.T, moves []classes.Move, kernel, old, final policytest.Entries, probes []netip.Addr) {
	run := 0 // moves from here on may be written in any order
	for i, mv := range moves {
		if p := moves[run]; mv.Gone != p.Gone || mv.Prefix.Bits() != p.Prefix.Bits() {
			run = i
		}
		if i == run {
			shuffle(t, moves[i:])
		}
		mv = moves[i]
		kernel.Write(mv.AddrChange)
		for _, a := range probes {
			got, was, will := kernel.Lookup(a).Class, old.Lookup(a).Class, final.Lookup(a).Class
			if got != was && got != will {
				t.Fatalf("after write %d of %v %v has class %d, neither the old %d nor the new %d", i, moves, a, got, was, will)
			}
		}
	}
}

// shuffle reverses the moves at the front that may be written in any order, or leaves them as they are.
func shuffle(t *rapid.T, moves []classes.Move) {
	n := slices.IndexFunc(moves, func(m classes.Move) bool {
		return m.Gone != moves[0].Gone || m.Prefix.Bits() != moves[0].Prefix.Bits()
	})
	if n < 0 {
		n = len(moves)
	}
	if rapid.Bool().Draw(t, "reverse") {
		slices.Reverse(moves[:n])
	}
}

func checkAddress(t *rapid.T, c *classes.Classes, m *members, kernel policytest.Entries, a netip.Addr) {
	got := kernel.Lookup(a)
	class, ok := c.Class(got.Class)
	if !ok {
		t.Fatalf("%v has class %d, which does not exist", a, got.Class)
	}
	if want := m.sets(a); !slices.Equal(class.Sets, want) {
		t.Fatalf("%v is in sets %v by its class, want %v", a, class.Sets, want)
	}
	if want := m.flags(a); got.Flags != want {
		t.Fatalf("%v has flags %v, want %v", a, got.Flags, want)
	}
	if look := c.Lookup(a); look != got {
		t.Fatalf("lookup of %v says %v, the kernel has %v", a, look, got)
	}
}

func TestAClassIsSharedByAllAddressesInTheSameSets(t *testing.T) {
	c := classes.New()
	c.Show(1, 2)
	for i := range 100 {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)
		c.Add(p, 1)
		c.Add(p, 2)
	}
	if n := len(c.Diff()); n != 100 {
		t.Errorf("%d writes for 100 addresses in two sets each", n)
	}
	want := []classes.Class{{ID: 2, Family: 4, Sets: []uint32{1, 2}}}
	if d := cmp.Diff(want, c.Created()); d != "" {
		t.Error(d)
	}
}

func TestADroppedClassIDIsUsedAgainOnlyLater(t *testing.T) {
	c := classes.New()
	c.Show(1, 2)
	p := netip.MustParsePrefix("10.0.0.1/32")
	c.Add(p, 1)
	c.Diff()
	c.Remove(p, 1)
	c.Diff()
	if d := cmp.Diff([]uint32{2}, c.Drop()); d != "" {
		t.Fatal(d)
	}
	c.Add(p, 2)
	if got := c.Diff()[0].Class; got != 3 {
		t.Errorf("class %d right after class 2 was dropped, want 3", got)
	}
	c.Remove(p, 2)
	c.Diff()
	c.Drop()
	c.Reuse()
	c.Add(p, 1)
	if got := c.Diff()[0].Class; got != 2 {
		t.Errorf("class %d after the dropped ones may be used again, want 2", got)
	}
}

func TestAnOwnersChangeIsWrittenThoughTheClassIsTheSame(t *testing.T) {
	c := classes.New()
	p := netip.MustParsePrefix("10.0.0.1/32")
	c.Own(p, model.WorkloadID("", "a"))
	c.Diff()
	c.Own(p, model.WorkloadID("", "b"))
	want := classes.AddrChange{Prefix: p, Flags: classes.AddrFlags(bpf.AddrEndpoint), Endpoint: model.WorkloadID("", "b")}
	moves := c.Diff()
	if len(moves) != 1 || moves[0].AddrChange != want {
		t.Errorf("got %v, want %v", moves, want)
	}
	if again := c.Diff(); len(again) != 0 {
		t.Errorf("written again: %v", again)
	}
	c.Disown(p)
	if moves := c.Diff(); len(moves) != 1 || !moves[0].Gone {
		t.Errorf("disowned: %v, want it gone", moves)
	}
}
