package bpfmaps

import (
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestAResyncInPartsFindsWhatOthersChangeAndNothingElse: the table is written between parts, which is no difference. An entry that somebody else
// changes before the first part, or in the last one, is found and repaired; an entry that he changes in between may be, and the next
// resync finds it.
func TestAResyncInPartsFindsWhatOthersChangeAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := NewFake[int, int]("map", 0)
		fake.Part = rapid.IntRange(1, 8).Draw(t, "part")
		counted := &loads[int, int]{Kernel: fake}
		table := NewTable(counted)
		key := rapid.IntRange(0, 40)
		write := func(n int) {
			for range n {
				if k := key.Draw(t, "key"); rapid.Bool().Draw(t, "set") {
					table.Set(k, rapid.IntRange(0, 2).Draw(t, "value"))
				} else {
					table.Delete(k)
				}
			}
			if err := table.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		write(rapid.IntRange(0, 60).Draw(t, "entries"))
		damaged := rapid.Bool().Draw(t, "damaged")
		if damaged {
			k := key.Draw(t, "damaged key")
			if value, there := fake.Entries[k]; there && rapid.Bool().Draw(t, "gone") {
				delete(fake.Entries, k)
			} else {
				fake.Entries[k] = value + 1
			}
		}
		found, before := 0, counted.n
		for done := false; !done; {
			repairs, last, err := table.ResyncSome(rapid.IntRange(1, 12).Draw(t, "most"))
			if err != nil {
				t.Fatal(err)
			}
			found, done = found+repairs.Len(), last
			if !done && !damaged {
				write(rapid.IntRange(0, 5).Draw(t, "writes"))
			}
		}
		if damaged != (found > 0) || damaged != (counted.n > before) {
			t.Fatalf("%d differences found, the map was read whole %d times; damaged: %t", found, counted.n-before, damaged)
		}
		if err := table.Sync(); err != nil || !maps.Equal(maps.Collect(table.All()), fake.Entries) {
			t.Fatalf("desired %v, in the map %v (%v)", maps.Collect(table.All()), fake.Entries, err)
		}
	})
}

// loads counts how often a map is read whole.
type loads[K comparable, V comparable] struct {
	Kernel[K, V]
	n int
}

func (l *loads[K, V]) Load() (map[K]V, error) {
	l.n++
	return l.Kernel.Load()
}

// TestAResyncInPartsGoesOnWhereItWas: one call reads one part, and the others the rest.
func TestAResyncInPartsGoesOnWhereItWas(t *testing.T) {
	fake := NewFake[int, int]("map", 0)
	fake.Part = 10
	table := NewTable(fake)
	for k := range 35 {
		table.Set(k, k)
	}
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false, true} { // of 35 entries 20, and then the rest
		if repairs, done, err := table.ResyncSome(15); done != want || repairs.Len() > 0 || err != nil {
			t.Errorf("call %d: done %t, %d repairs (%v), want done %t", i, done, repairs.Len(), err, want)
		}
	}
}

// BenchmarkResync compares a map of 131,072 prefixes whole, and in parts as an Apply of the BPF dataplane reads them.
func BenchmarkResync(b *testing.B) {
	testutil.Privileged(b)
	m, err := Open(Options{BPFFS: testutil.BPFFS(b)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	table := m.Addresses.IP4Net
	for i := range uint32(1 << 17) {
		addr := netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 0})
		table.Set(Net4(netip.PrefixFrom(addr, 24)), bpf.AddrInfo{Class: i})
	}
	if err := table.Sync(); err != nil {
		b.Fatal(err)
	}
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			if _, err := table.Resync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("in parts", func(b *testing.B) {
		for b.Loop() {
			if repairs, _, err := table.ResyncSome(1 << 12); err != nil || repairs.Len() > 0 {
				b.Fatal(repairs.Len(), err)
			}
		}
	})
}
