package bpfmaps

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/margay-project/margay/bpf"
)

func TestChangesByHandInALiveSlotAreFound(t *testing.T) {
	m, o := openMaps(t)
	s := mustSlots(t, m)
	interpreted := SlotContent{Shape: bpf.Slot{Rules: 2, Flags: bpf.SlotInterpret}, Rules: policyContent(2, 5).Rules}
	slots := mustPublish(t, s, policyContent(20, 1), policyContent(30, 1000), interpreted)
	mustFind := func(want ...uint32) {
		t.Helper()
		altered, _, err := s.Altered(m, s.Live(), 1<<40)
		if err != nil || !slices.Equal(altered, want) {
			t.Errorf("found %v (%v), want %v", altered, err, want)
		}
	}
	if err := errors.Join(s.PatchRows(slots[0], []Row{{64, 3}}), s.PatchRows(slots[0], []Row{{64, 4}}), s.PatchRows(slots[1], []Row{{700, 1}})); err != nil {
		t.Fatal(err)
	}
	mustFind()
	for p := range parts {
		inner, err := s.arrays.open(p, slots[1])
		if err != nil {
			t.Fatal(err)
		}
		before := make([]byte, inner.ValueSize())
		if err := inner.Lookup(uint32(3), before); err != nil {
			t.Fatal(err)
		}
		after := slices.Clone(before)
		after[2]++
		for _, step := range []struct {
			value []byte
			found []uint32
		}{{after, slots[1:2]}, {before, nil}} {
			if err := inner.Put(uint32(3), step.value); err != nil {
				t.Fatal(err)
			}
			mustFind(step.found...)
		}
		inner.Close()
	}
	if err := m.Map(bpf.MargayMapSlots).Put(slots[2], &bpf.Slot{Rules: 1, Flags: bpf.SlotInterpret}); err != nil {
		t.Fatal(err)
	}
	if err := m.Map(bpf.MargayMapL4).Delete(slots[0]); err != nil {
		t.Fatal(err)
	}
	altered, _, err := s.Altered(m, s.Live(), 1<<40)
	if err == nil || !slices.Equal(altered, []uint32{slots[0], slots[2]}) {
		t.Errorf("found %v (%v), want the one without an array and the one of another shape", altered, err)
	}
	s.Close()
	m.Close()
	m = mustOpen(t, o)
	s = mustSlots(t, m, slots...)
	mustFind() // what an earlier agent published counts as it was found
	if err := s.PatchRows(slots[1], []Row{{701, 2}}); err != nil {
		t.Fatal(err)
	}
	mustFind()
	for p := range parts {
		inner, err := s.arrays.open(p, slots[1])
		if err != nil {
			t.Fatal(err)
		}
		value := make([]byte, inner.ValueSize())
		if err := inner.Lookup(uint32(3), value); err != nil {
			t.Fatal(err)
		}
		value[2]++
		if err := inner.Put(uint32(3), value); err != nil {
			t.Fatal(err)
		}
		mustFind(slots[1])
		value[2]--
		if err := inner.Put(uint32(3), value); err != nil {
			t.Fatal(err)
		}
		inner.Close()
	}
	mustFind()
}

// TestAnAlteredSlotIsUsedAgainWithNewArrays: one of its arrays may be another slot's by now, or be gone.
func TestAnAlteredSlotIsUsedAgainWithNewArrays(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	slots := mustPublish(t, s, policyContent(20, 1), policyContent(20, 1000))
	other, err := s.arrays.open(partCells, slots[1])
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	cells := m.Map(bpf.MargayMapCells)
	if err := errors.Join(cells.Put(slots[0], uint32(other.FD())), m.Map(bpf.MargayMapOutcomes).Delete(slots[0])); err != nil {
		t.Fatal(err)
	}
	if altered, _, err := s.Altered(m, s.Live(), 1<<40); err == nil || !slices.Equal(altered, slots[:1]) {
		t.Fatalf("found %v (%v), want slot %d", altered, err, slots[0])
	}
	if err := s.Release(slots[0]); err != nil {
		t.Fatal(err)
	}
	freeReleased(t, s)
	again := mustPublish(t, s, policyContent(20, 2000))
	if !slices.Equal(again, slots[:1]) {
		t.Errorf("published in slot %v, want %d again", again, slots[0])
	}
	for slot, content := range map[uint32]SlotContent{slots[1]: policyContent(20, 1000), again[0]: policyContent(20, 2000)} {
		if what, err := differs(m, slot, content); what != "" || err != nil {
			t.Errorf("slot %d: %s, %v", slot, what, err)
		}
	}
	if altered, _, err := s.Altered(m, s.Live(), 1<<40); err != nil || len(altered) > 0 {
		t.Errorf("found %v (%v)", altered, err)
	}
}

// The sum of a table's rows shows each alteration of one row, and rows that two classes have exchanged. A class without a row adds nothing, so a
// table has the same sum whatever its headroom is.
func TestTheSumOfRowsShowsEveryAlteration(t *testing.T) {
	classes := []uint32{0, 1, 2, 3, 31, 32, 33, 255, 256, 65535, 65536, 1 << 20}
	rows := []uint16{0, 1, 2, 3, 255, 256, 257, 65535}
	seen := map[uint64]string{}
	for _, class := range classes {
		for _, row := range rows {
			sum := rowSum(class, row)
			if row == 0 {
				if sum != 0 {
					t.Errorf("class %d without a row adds %#x", class, sum)
				}
				continue
			}
			if sum == 0 {
				t.Errorf("row %d of class %d adds nothing", row, class)
			}
			what := fmt.Sprintf("row %d of class %d", row, class)
			if other, ok := seen[sum]; ok {
				t.Errorf("%s and %s add the same", other, what)
			}
			seen[sum] = what
			for _, other := range classes {
				for _, second := range rows {
					if class != other && row != second && sum+rowSum(other, second) == rowSum(class, second)+rowSum(other, row) {
						t.Errorf("%s and row %d of class %d may be exchanged", what, second, other)
					}
				}
			}
		}
	}
}

// Rows that are added one after the other make the sum that the table has when it is read back.
func TestTheSumOfRowsIsThatOfItsChanges(t *testing.T) {
	blocks := make([]bpf.CellBlock, 3)
	sum := uint64(0)
	for i, class := range []uint32{5, 0, classesPerValue, 2*classesPerValue + 1, 5, 0, 5} { // some are written again
		cell := &blocks[class/classesPerValue].Cell[class%classesPerValue]
		row := uint16((i + 1) % 6) // and one is removed
		sum += rowSum(class, row) - rowSum(class, *cell)
		*cell = row
	}
	if want := rowsSum(blocks); sum != want {
		t.Errorf("the sum of changes is %#x, that of the table %#x", sum, want)
	}
}
