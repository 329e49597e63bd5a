package bpfmaps

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
)

func TestSyncWritesTheDifferenceAndThenNothing(t *testing.T) {
	kernel := NewFake[uint32, uint32]("ip4_host", 0)
	kernel.Entries = map[uint32]uint32{1: 10, 2: 20, 3: 30}
	table := NewTable(kernel)
	table.Set(1, 10)
	table.Set(2, 21)
	table.Set(4, 40)
	for i, want := range []int{3, 3} {
		if err := table.Sync(); err != nil {
			t.Fatal(err)
		}
		if kernel.Writes != want {
			t.Errorf("after Sync %d: %d writes, want %d", i+1, kernel.Writes, want)
		}
	}
	if diff := cmp.Diff(map[uint32]uint32{1: 10, 2: 21, 4: 40}, kernel.Entries); diff != "" {
		t.Error(diff)
	}
}

func TestSyncGoesOnAfterAFailureAndRetriesIt(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EBUSY, unix.E2BIG} {
		kernel := NewFake[uint32, uint32]("ip4_host", 0)
		table := NewTable(kernel)
		want := map[uint32]uint32{}
		for i := range uint32(10) {
			table.Set(i, i)
			want[i] = i
		}
		kernel.FailNth(4, errno)
		err := table.Sync()
		if !errors.Is(err, errno) || !strings.Contains(err.Error(), "write map ip4_host key ") {
			t.Errorf("%v: error %q does not name errno, map and key", errno, err)
		}
		if len(kernel.Entries) != 9 || table.Pending() != 1 {
			t.Errorf("%v: %d entries written and %d pending, want 9 and 1", errno, len(kernel.Entries), table.Pending())
		}
		if err := table.Sync(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, kernel.Entries); diff != "" {
			t.Errorf("%v: %s", errno, diff)
		}
	}
}

func TestAFullMapTakesNewEntriesOnceOldOnesAreGone(t *testing.T) {
	kernel := NewFake[uint32, uint32]("ip4_host", 2)
	kernel.Entries = map[uint32]uint32{1: 1, 2: 2}
	table := NewTable(kernel)
	table.Set(3, 3)
	table.Set(4, 4)
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32]uint32{3: 3, 4: 4}, kernel.Entries); diff != "" {
		t.Error(diff)
	}
}

func TestSyncGivesUpOnAMapThatRefusesEverything(t *testing.T) {
	kernel := NewFake[uint32, uint32]("ip4_host", 1)
	table := NewTable(kernel)
	for i := range uint32(100_000) {
		table.Set(i, i)
	}
	err := table.Sync()
	if !errors.Is(err, unix.E2BIG) || !strings.Contains(err.Error(), "and ") {
		t.Errorf("error: %v", err)
	}
	if kernel.Writes > giveUp+100 {
		t.Errorf("%d writes tried on a full map", kernel.Writes)
	}
	if table.Pending() != 99_999 {
		t.Errorf("%d pending, want 99999", table.Pending())
	}
}

func TestWhatIsAdoptedStaysUntilItIsDeleted(t *testing.T) {
	kernel := NewFake[uint32, uint32]("ip4_host", 0)
	kernel.Entries = map[uint32]uint32{1: 10, 2: 20, 3: 30}
	table := NewTable(kernel)
	if err := table.Adopt(); err != nil {
		t.Fatal(err)
	}
	table.Delete(2)
	table.Set(3, 31)
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32]uint32{1: 10, 3: 31}, kernel.Entries); diff != "" || kernel.Writes != 2 {
		t.Errorf("%d writes: %s", kernel.Writes, diff)
	}
}

func TestResyncReportsAndSyncRepairsChangesByHand(t *testing.T) {
	kernel := NewFake[uint32, uint32]("ip4_host", 0)
	table := NewTable(kernel)
	table.Set(1, 10)
	table.Set(2, 20)
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	delete(kernel.Entries, 1)
	kernel.Entries[2] = 99
	kernel.Entries[3] = 30
	repairs, err := table.Resync()
	if err != nil {
		t.Fatal(err)
	}
	if repairs.Len() != 3 {
		t.Errorf("repairs %+v, want one of each kind", repairs)
	}
	if err := table.Sync(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[uint32]uint32{1: 10, 2: 20}, kernel.Entries); diff != "" {
		t.Error(diff)
	}
}

// An agent that dies after any number of writes leaves a map from which a new one reaches the same end.
func TestTableConvergesAfterDeathBetweenAnyTwoWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.MapOf(rapid.Uint32Range(0, 20), rapid.Uint32Range(0, 3))
		before, want := entry.Draw(t, "before"), entry.Draw(t, "want")
		kernel := NewFake[uint32, uint32]("ip4_host", 0)
		kernel.Entries = maps.Clone(before)
		for deaths := rapid.IntRange(0, 30).Draw(t, "dies after"); ; deaths = 1000 {
			table := NewTable(&mortal{kernel, deaths})
			for k, v := range want {
				table.Set(k, v)
			}
			if err := table.Sync(); err == nil {
				break
			}
		}
		if diff := cmp.Diff(want, kernel.Entries); diff != "" {
			t.Fatal(diff)
		}
	})
}

// mortal refuses all writes after the first few.
type mortal struct {
	*Fake[uint32, uint32]
	left int
}

func (m *mortal) Update(keys, values []uint32) (int, error) {
	n := min(len(keys), m.left)
	m.left -= n
	if _, err := m.Fake.Update(keys[:n], values[:n]); err != nil || n == len(keys) {
		return n, err
	}
	return n, unix.EINTR
}

func (m *mortal) Delete(keys []uint32) (int, error) {
	n := min(len(keys), m.left)
	m.left -= n
	if _, err := m.Fake.Delete(keys[:n]); err != nil || n == len(keys) {
		return n, err
	}
	return n, unix.EINTR
}

func TestNamesThatAreTooLongStayDifferent(t *testing.T) {
	long := strings.Repeat("x", 300)
	a, b := NewName(long+"a"), NewName(long+"b")
	if a == b || len(NameText(a)) != 255 {
		t.Errorf("%d bytes; equal: %v", len(NameText(a)), a == b)
	}
	if got := NameText(NewName("default/np/shop/db")); got != "default/np/shop/db" {
		t.Errorf("got %q", got)
	}
}

// BenchmarkSyncSome writes very many entries some at a time, as the names of a large policy's rules are.
func BenchmarkSyncSome(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		table := NewTable[uint32, bpf.Name](NewFake[uint32, bpf.Name]("names", 0))
		for key := range uint32(20_000) {
			table.Set(key, NewName("rule"))
		}
		for table.Pending() > 0 {
			if err := table.SyncSome(512); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// The space for a few writes is used again; that for very many is given back.
func TestATableKeepsTheSpaceOfFewWritesOnly(t *testing.T) {
	table := NewTable(NewFake[uint32, uint32]("ip4_host", 0))
	next := uint32(0)
	write := func(n int) {
		for range n {
			next++
			table.Set(next, next)
		}
		if err := table.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	write(keptSpace)
	if cap(table.keys) < keptSpace || cap(table.values) < keptSpace {
		t.Errorf("space for %d keys and %d values is kept, want %d", cap(table.keys), cap(table.values), keptSpace)
	}
	write(16 * keptSpace)
	if cap(table.keys) > 4*keptSpace || cap(table.values) > 4*keptSpace {
		t.Errorf("after many writes space for %d keys and %d values is kept", cap(table.keys), cap(table.values))
	}
	if table.Len() != 17*keptSpace || table.Pending() != 0 {
		t.Errorf("%d entries, %d pending", table.Len(), table.Pending())
	}
}
