package verify

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// TestEveryAddressIsInAPair: for each address there is a pair with the class of the longest entry around it and with the
// atoms that it is in, and the pair's own addresses are such.
func TestEveryAddressIsInAPair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := rapid.SampledFrom(policytest.Addrs("0.0.0.0", "10.0.0.0", "10.0.0.1", "255.255.255.255", "::", "fd00::1")).Draw(t, "address")
			p, err := a.Prefix(rapid.SampledFrom([]int{0, 1, 8, 30, 31, 32, 64, 127, 128}).Filter(func(n int) bool { return n <= a.BitLen() }).Draw(t, "bits"))
			if err != nil {
				t.Fatal(err)
			}
			return p
		})
		atoms := NewAtoms()
		sets := map[model.SetID][]netip.Prefix{}
		for _, id := range []model.SetID{"a", "b"} {
			atoms.AddSet(id)
			sets[id] = rapid.SliceOfN(gen, 0, 5).Draw(t, "members")
		}
		entries := []Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0"), Class: 1}}
		for i, p := range rapid.SliceOfNDistinct(gen, 0, 6, rapid.ID).Draw(t, "entries") {
			if p.Bits() > 0 {
				entries = append(entries, Entry{Prefix: p, Class: uint32(i + 2)})
			}
		}
		r := NewRegions(atoms, func() error { return nil })
		for id, members := range sets {
			r.AddMembers(id, members)
		}
		r.AddEntries(entries)
		pairs, err := r.Pairs()
		if err != nil {
			t.Fatal(err)
		}
		kind := func(a netip.Addr) (class uint32, s Signature) {
			best := -1
			for _, e := range entries {
				if e.Prefix.Contains(a) && e.Prefix.Bits() > best {
					best, class = e.Prefix.Bits(), e.Class
				}
			}
			for id, members := range sets {
				if slices.ContainsFunc(members, func(p netip.Prefix) bool { return p.Contains(a) }) {
					s = append(s, atoms.sets[id])
				}
			}
			slices.Sort(s)
			return class, s
		}
		for _, text := range []string{"0.0.0.0", "0.0.0.1", "9.9.9.9", "10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.200.0.1", "127.255.255.255",
			"128.0.0.0", "255.255.255.254", "255.255.255.255", "::", "::1", "fd00::", "fd00::1", "fd00::2", "fe00::"} {
			class, s := kind(netip.MustParseAddr(text))
			if !slices.ContainsFunc(pairs, func(p *Pair) bool {
				return p.Class == class && slices.Equal(p.Signature, s) && p.Family == Family(netip.MustParseAddr(text))
			}) {
				t.Fatalf("%s: no pair of class %d and atoms %v", text, class, s)
			}
		}
		for _, p := range pairs {
			for _, a := range p.Some {
				if class, s := kind(a); class != p.Class || !slices.Equal(s, p.Signature) || Family(a) != p.Family {
					t.Fatalf("%s is of class %d and in %v, but stands for %+v", a, class, s, p)
				}
			}
		}
	})
}
