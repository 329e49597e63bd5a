package verify

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// marked is what a Marking is given, to compare with what it says.
type marked struct {
	sets    map[model.SetID][]netip.Prefix
	host    []netip.Addr
	owned   map[netip.Addr]uint32 // address of a pod -> the interface
	unsure  map[netip.Addr]bool   // of those
	entries []Entry
}

func drawMarked(t *rapid.T) marked {
	addr := rapid.SampledFrom(policytest.Addrs("10.0.0.0", "10.0.0.1", "10.0.0.2", "fd00::", "fd00::1"))
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := addr.Draw(t, "address")
		p, _ := a.Prefix(a.BitLen() - rapid.SampledFrom([]int{0, 0, 0, 1, 8}).Draw(t, "bits"))
		return p
	})
	m := marked{sets: map[model.SetID][]netip.Prefix{}, owned: map[netip.Addr]uint32{}, unsure: map[netip.Addr]bool{}}
	for _, id := range MarkSets() {
		m.sets[id] = rapid.SliceOfN(prefix, 0, 2).Draw(t, string(id))
	}
	m.host = rapid.SliceOfN(addr, 0, 1).Draw(t, "host")
	for i, a := range rapid.SliceOfNDistinct(addr, 0, 2, rapid.ID).Draw(t, "pods") {
		m.owned[a], m.unsure[a] = uint32(i+7), rapid.IntRange(0, 3).Draw(t, "unsure") == 0
	}
	m.entries = []Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0")}}
	for _, p := range rapid.SliceOfNDistinct(prefix, 0, 6, rapid.ID).Draw(t, "entries") {
		marks := Marks{Node: rapid.Bool().Draw(t, "node"), Translated: rapid.Bool().Draw(t, "service"), Owned: rapid.Bool().Draw(t, "owned")}
		if rapid.Bool().Draw(t, "right") {
			marks, _ = m.want(p.Addr())
		}
		m.entries = append(m.entries, Entry{Prefix: p, Marks: marks})
	}
	return m
}

// want returns the marks that an address should have; not sure: they are not compared.
func (m marked) want(a netip.Addr) (want Marks, sure bool) {
	in := func(id model.SetID) bool {
		return slices.ContainsFunc(m.sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
	}
	ifindex, local := m.owned[a]
	return Marks{Node: in(model.SetNodeAddrs) || slices.Contains(m.host, a), Translated: in(model.SetServiceAddrs), Owned: in(model.SetOwnedAddrs),
		Local: local, Interface: ifindex}, !m.unsure[a]
}

// has returns the marks that an address has in the kernel.
func (m marked) has(a netip.Addr) Marks {
	var best Entry
	for _, e := range m.entries {
		if e.Prefix.Contains(a) && (best.Prefix.Bits() < e.Prefix.Bits() || !best.Prefix.IsValid()) {
			best = e
		}
	}
	return best.Marks
}

// Every address with other marks than it should have is found, or another one of its kind; and no other address is.
func TestWrongMarksAreFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMarked(t)
		host := slices.Clone(m.host)
		for i, a := range host { // as the kernel may list them
			if a.Is4() {
				host[i] = netip.AddrFrom16(a.As16())
			}
		}
		marking := NewMarking(m.sets, host, func() error { return nil })
		for a, ifindex := range m.owned {
			marking.Own(model.WorkloadID("ns", a.String()), []netip.Addr{a}, ifindex, m.unsure[a])
		}
		marking.AddEntries(m.entries)
		wrong, err := marking.Wrong()
		if err != nil {
			t.Fatal(err)
		}
		type kind struct{ want, has Marks }
		found := map[kind]bool{}
		for _, a := range wrong {
			want, sure := m.want(a)
			if !sure || m.has(a) == want {
				t.Fatalf("%v counts as wrong: it has %v, want %v", a, m.has(a), want)
			}
			if got := marking.Want(a); got != want {
				t.Fatalf("%v should have %v by the message, want %v", a, got, want)
			}
			found[kind{want, m.has(a)}] = true
		}
		for _, a := range policytest.Addrs("10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9", "10.0.1.1", "fd00::", "fd00::1", "fd00::2", "fd01::") {
			if want, sure := m.want(a); sure && m.has(a) != want && !found[kind{want, m.has(a)}] {
				t.Fatalf("%v has %v, want %v, which is not found: %v", a, m.has(a), want, wrong)
			}
		}
	})
}
