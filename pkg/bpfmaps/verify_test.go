package bpfmaps

import (
	"errors"
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
		altered, err := s.Altered(m)
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
	altered, err := s.Altered(m)
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
	if altered, err := s.Altered(m); err == nil || !slices.Equal(altered, slots[:1]) {
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
	if altered, err := s.Altered(m); err != nil || len(altered) > 0 {
		t.Errorf("found %v (%v)", altered, err)
	}
}
