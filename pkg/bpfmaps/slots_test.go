package bpfmaps

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// policy is a content of n rules whose every value tells it apart from others.
func policyContent(n int, seed uint32) SlotContent {
	c := SlotContent{Shape: bpf.Slot{Rules: uint32(n), Rows: 2, Columns: uint32(n), Blocks: 1, Sports: 1, Classifier: seed}}
	for i := range n {
		c.Rules = append(c.Rules, bpf.Rule{Id: seed + uint32(i), Action: bpf.RuleAllow})
		block := bpf.CellBlock{Cell: [32]uint16{uint16(seed), uint16(i), 31: 7}}
		c.Rows, c.RowBlk, c.Cells = append(c.Rows, block), append(c.RowBlk, block), append(c.Cells, block)
		c.Outcomes = append(c.Outcomes, bpf.Outcome{Id: seed + uint32(i), Action: bpf.RuleDeny})
	}
	c.L4 = make([]bpf.L4Page, 7)
	c.L4[6].Col[255] = uint16(seed)
	return c
}

func mustSlots(t *testing.T, m *Maps, inUse ...uint32) *Slots {
	t.Helper()
	s, err := m.OpenSlots(inUse, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustPublish(t *testing.T, s *Slots, contents ...SlotContent) []uint32 {
	t.Helper()
	slots, err := s.Publish(contents)
	if err != nil {
		t.Fatal(err)
	}
	return slots
}

// differs names the first part of a slot that is not what was published in it. Arrays may be longer; rows are zero there.
func differs(m *Maps, slot uint32, want SlotContent) (string, error) {
	got, err := m.ReadSlot(slot)
	if err != nil {
		return "", err
	}
	beyond := got.Rows[len(want.Rows):]
	switch {
	case got.Shape != want.Shape:
		return "shape", nil
	case !slices.Equal(got.Rules, want.Rules):
		return "rules", nil
	case !slices.Equal(got.L4[:len(want.L4)], want.L4):
		return "L4 pages", nil
	case !slices.Equal(got.Rows[:len(want.Rows)], want.Rows):
		return "rows", nil
	case slices.ContainsFunc(beyond, func(row bpf.CellBlock) bool { return row != bpf.CellBlock{} }):
		return "rows beyond the content", nil
	case !slices.Equal(got.RowBlk[:len(want.RowBlk)], want.RowBlk):
		return "row blocks", nil
	case !slices.Equal(got.Cells[:len(want.Cells)], want.Cells):
		return "cells", nil
	case !slices.Equal(got.Outcomes[:len(want.Outcomes)], want.Outcomes):
		return "outcomes", nil
	}
	return "", nil
}

func TestPublishedPoliciesAreReadBack(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	contents := []SlotContent{policyContent(1, 100), policyContent(300, 2000), policyContent(5000, 30000)}
	slots := mustPublish(t, s, contents...)
	for i, slot := range slots {
		if slot == 0 {
			t.Fatal("slot 0 was used")
		}
		if diff, err := differs(m, slot, contents[i]); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
	want := slices.Clone(slots)
	slices.Sort(want)
	if !slices.Equal(s.Live(), want) {
		t.Errorf("live %v, want %v", s.Live(), want)
	}
}

func TestAReleasedSlotIsUsedAgainWithoutNewMaps(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	first := mustPublish(t, s, policyContent(100, 1))[0]
	second := mustPublish(t, s, policyContent(100, 2))[0]
	if first == second {
		t.Fatal("a live slot was used again")
	}
	id := innerID(t, m, first)
	if err := s.Release(first); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(first); err == nil {
		t.Error("released twice")
	}
	freeReleased(t, s)
	third := mustPublish(t, s, policyContent(110, 3))[0]
	if third != first || innerID(t, m, first) != id {
		t.Errorf("slot %d, array %d; want slot %d with its array %d", third, innerID(t, m, first), first, id)
	}
	if diff, err := differs(m, third, policyContent(110, 3)); err != nil || diff != "" {
		t.Errorf("%s (%v)", diff, err)
	}
	// A smaller one leaves nothing of the larger behind that a program would read.
	if err := s.Release(second); err != nil {
		t.Fatal(err)
	}
	freeReleased(t, s)
	fourth := mustPublish(t, s, policyContent(40, 4))[0]
	if diff, err := differs(m, fourth, policyContent(40, 4)); fourth != second || err != nil || diff != "" {
		t.Errorf("slot %d: %s (%v)", fourth, diff, err)
	}
}

// freeReleased waits until all released slots may be used again.
func freeReleased(t testing.TB, s *Slots) {
	t.Helper()
	for s.pool.grace.len() > 0 {
		freed, err := s.pool.grace.awaitPassed()
		if s.pool.free(freed); err != nil {
			t.Fatal(err)
		}
	}
}

func innerID(t *testing.T, m *Maps, slot uint32) uint32 {
	t.Helper()
	var id uint32
	if err := m.Map(bpf.MargayMapCells).Lookup(&slot, &id); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestASlotIsKeptBackUntilTheGracePeriodHasPassed(t *testing.T) {
	var g grace
	periods := make(chan error)
	g.wait = func() error { return <-periods }
	g.add(1)
	g.add(2) // while the first period runs: it has to wait for the next
	if freed, err := g.passed(); len(freed) != 0 || err != nil {
		t.Fatalf("freed %v (%v) before any period ended", freed, err)
	}
	periods <- nil
	freed, err := g.awaitPassed()
	if err != nil || !slices.Equal(freed, []uint32{1}) {
		t.Fatalf("after one period: %v (%v)", freed, err)
	}
	periods <- errors.New("no memory")
	if freed, err := g.awaitPassed(); err == nil || len(freed) != 0 {
		t.Fatalf("a period that failed freed %v", freed)
	}
	close(periods)
	if freed, err := g.awaitPassed(); err != nil || !slices.Equal(freed, []uint32{2}) {
		t.Fatalf("retried: %v (%v)", freed, err)
	}
}

// An agent that starts does not know when packets have left the slots that nothing refers to. It uses them all the same, whatever it publishes
// first: their arrays stay in the kernel's memory.
func TestStartsDoNotAddToTheSlotsThatLieIdle(t *testing.T) {
	const policies, starts = 12, 20
	m, o := openMaps(t)
	var live []uint32
	for start := range starts {
		s := mustSlots(t, m, live...)
		var contents []SlotContent
		for i := range policies {
			contents = append(contents, policyContent(10, uint32(1000*start+i)))
		}
		now := mustPublish(t, s, contents...)
		for _, slot := range live {
			if err := s.Release(slot); err != nil {
				t.Fatal(err)
			}
		}
		live = now
		if u := s.Usage(); u.Live != policies || u.Idle > 3*policies {
			t.Fatalf("start %d: %+v, want %d live and at most %d idle", start, u, policies, 3*policies)
		}
		if err := errors.Join(s.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
		m = mustOpen(t, o)
	}
}

func TestRCUWaitWithoutMembarrier(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	if err := rcuWait(s.arrays.outer[partRules], s.arrays.template[partRules]); err != nil {
		t.Error(err)
	}
}

func TestEnlargedRowsHoldWhatTheyHeldAndAreFoundAgain(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	slots := mustPublish(t, s, policyContent(4, 1), policyContent(4, 2))
	if err := s.PatchRows(slots[0], []Row{{40, 9}, {41, 8}, {33, 7}}); err != nil {
		t.Fatal(err)
	}
	want := policyContent(4, 1).Rows
	want[1].Cell[8], want[1].Cell[9], want[1].Cell[1] = 9, 8, 7
	most := s.Classes(slots[0])
	want = append(want, make([]bpf.CellBlock, 60)...)
	want[60].Cell[3] = 5
	if err := s.EnlargeRows(slots[:1], [][]bpf.CellBlock{want}); err != nil {
		t.Fatal(err)
	}
	if s.Classes(slots[0]) < 64*32 || s.Classes(slots[1]) != most {
		t.Errorf("room for %d and %d classes", s.Classes(slots[0]), s.Classes(slots[1]))
	}
	if err := s.PatchRows(slots[0], []Row{{63*32 + 1, 6}}); err != nil {
		t.Fatal(err)
	}
	want[63].Cell[1] = 6
	content := policyContent(4, 1)
	content.Rows = want
	if diff, err := differs(m, slots[0], content); err != nil || diff != "" {
		t.Errorf("slot %d: %s (%v)", slots[0], diff, err)
	}
	if altered, _, err := s.Altered(m, s.Live(), 1<<40); len(altered) != 0 || err != nil {
		t.Errorf("altered %v (%v)", altered, err)
	}
	// An agent that starts finds the longer array.
	if again := mustSlots(t, m, slots...); again.Classes(slots[0]) != s.Classes(slots[0]) {
		t.Errorf("room for %d classes after a restart, %d before", again.Classes(slots[0]), s.Classes(slots[0]))
	}
	if err := s.EnlargeRows([]uint32{4000}, [][]bpf.CellBlock{want}); err == nil {
		t.Error("a slot that is not in use was enlarged")
	}
}

func TestPatchRowsAddsAClassInPlace(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	c := policyContent(4, 9)
	slot := mustPublish(t, s, c)[0]
	if err := s.PatchRows(slot, []Row{{3*32 + 5, 1}}); err != nil {
		t.Fatal(err)
	}
	c.Rows[3].Cell[5] = 1
	if diff, err := differs(m, slot, c); err != nil || diff != "" {
		t.Errorf("%s (%v)", diff, err)
	}
	if err := s.PatchRows(slot, []Row{{s.Classes(slot) - 1, 1}}); err != nil {
		t.Errorf("within the headroom: %v", err)
	}
	if err := s.PatchRows(slot, []Row{{s.Classes(slot), 1}}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("beyond it: %v, want ErrNoRoom", err)
	}
	if err := s.PatchRows(slot+1, []Row{{1, 1}}); err == nil {
		t.Error("a slot that is not live was written to")
	}
}

// WriteRows writes the values that have one of the classes, and no others, and may be repeated.
func TestWriteRowsAddsClassesInPlace(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	c := policyContent(4, 9)
	slot := mustPublish(t, s, c)[0]
	want := policyContent(4, 9)
	want.Rows[1].Cell[4], want.Rows[3].Cell[5], want.Rows[3].Cell[6] = 2, 1, 3
	rows := slices.Clone(want.Rows)
	rows[2].Cell[0] = 77 // of a class that is not among those
	for range 2 {
		if err := s.WriteRows(slot, []uint32{3*32 + 5, 32 + 4, 3*32 + 6}, rows); err != nil {
			t.Fatal(err)
		}
		if diff, err := differs(m, slot, want); err != nil || diff != "" {
			t.Errorf("%s (%v)", diff, err)
		}
		if altered, _, err := s.Altered(m, s.Live(), 1<<40); len(altered) != 0 || err != nil {
			t.Errorf("altered %v (%v)", altered, err)
		}
	}
	most := s.Classes(slot)
	rows = append(rows, make([]bpf.CellBlock, int(most)/32+1-len(rows))...)
	rows[most/32-1].Cell[31], rows[2] = 4, want.Rows[2]
	if err := s.WriteRows(slot, []uint32{most, most - 1}, rows); !errors.Is(err, ErrNoRoom) {
		t.Errorf("beyond the room: %v, want ErrNoRoom", err)
	}
	want.Rows = rows[:most/32]
	if diff, err := differs(m, slot, want); err != nil || diff != "" {
		t.Errorf("the others: %s (%v)", diff, err)
	}
	if altered, _, err := s.Altered(m, s.Live(), 1<<40); len(altered) != 0 || err != nil {
		t.Errorf("altered %v (%v)", altered, err)
	}
	if err := s.WriteRows(slot+1, []uint32{1}, rows); err == nil {
		t.Error("a slot that is not live was written to")
	}
}

func TestAFailedPublishNamesMapAndSlotAndLosesNothing(t *testing.T) {
	m, o := openMaps(t)
	s := mustSlots(t, m)
	kept := mustPublish(t, s, policyContent(10, 1))[0]
	s.arrays.calls.wait()             // the one that has published what is kept may be under way
	s.arrays.outer[partCells].Close() // all writes to it fail from here on
	slots, err := s.Publish([]SlotContent{policyContent(20, 2)})
	if err == nil || slots[0] != 0 || !strings.Contains(err.Error(), "publish policy in slot ") || !strings.Contains(err.Error(), "map cells") {
		t.Fatalf("slots %v, error %v", slots, err)
	}
	t.Log(err)
	if diff := cmp.Diff([]uint32{kept}, s.Live()); diff != "" {
		t.Error(diff)
	}
	s.Close()
	m.Close()
	m = mustOpen(t, o)
	s = mustSlots(t, m, kept)
	again := mustPublish(t, s, policyContent(20, 2))[0]
	for slot, want := range map[uint32]SlotContent{kept: policyContent(10, 1), again: policyContent(20, 2)} {
		if diff, err := differs(m, slot, want); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
}

func BenchmarkPublish(b *testing.B) {
	testutil.Privileged(b)
	m, err := Open(Options{BPFFS: testutil.BPFFS(b), MaxEntries: small})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	crowded := policyContent(100, 1) // of a node with 60,000 classes
	crowded.Rows = slices.Repeat(crowded.Rows[:1], 2000)
	for name, contents := range map[string][]SlotContent{"1": {policyContent(100, 1)}, "100": slices.Repeat([]SlotContent{policyContent(100, 1)}, 100), "crowded": {crowded}} {
		for _, reuse := range []bool{true, false} {
			b.Run(map[bool]string{true: "reuse", false: "create"}[reuse]+"/"+name, func(b *testing.B) {
				s, err := m.OpenSlots(nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				for b.Loop() {
					b.StopTimer()
					if !reuse {
						for i := range s.pool.places {
							s.pool.places[i].capacity = [parts]uint32{}
						}
					}
					freeReleased(b, s)
					b.StartTimer()
					slots, err := s.Publish(contents)
					if err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					for _, slot := range slots {
						if err := s.Release(slot); err != nil {
							b.Fatal(err)
						}
					}
					b.StartTimer()
				}
			})
		}
	}
}
