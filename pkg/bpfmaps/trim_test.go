package bpfmaps

import "testing"

func TestTrimFreesIdleSlotsAndNoOthers(t *testing.T) {
	m, o := openMaps(t)
	s := mustSlots(t, m)
	var contents []SlotContent
	for i := range 6 {
		contents = append(contents, policyContent(1+i, uint32(1+i)))
	}
	slots := mustPublish(t, s, contents...)
	for _, slot := range slots[2:] {
		if err := s.Release(slot); err != nil {
			t.Fatal(err)
		}
	}
	freeReleased(t, s)
	before := s.Usage()
	if err := s.Trim(before.IdleBytes - 1); err != nil {
		t.Fatal(err)
	}
	if u := s.Usage(); u.Idle != before.Idle-1 || u.Live != 2 {
		t.Errorf("the largest is to go: %+v", u)
	}
	if err := s.Trim(0); err != nil {
		t.Fatal(err)
	}
	if u := s.Usage(); u.Idle != 0 || u.IdleBytes != 0 || u.Live != 2 || u.LiveBytes != before.LiveBytes {
		t.Errorf("after all: %+v, before %+v", u, before)
	}
	// What the emptied slots share is nobody's, after a restart either: contents as small as that get arrays of their own.
	s.Close()
	m.Close()
	m = mustOpen(t, o)
	s = mustSlots(t, m, slots[:2]...)
	tiny := []SlotContent{policyContent(1, 11), policyContent(1, 12), policyContent(1, 13)}
	want := map[uint32]SlotContent{slots[0]: contents[0], slots[1]: contents[1]}
	for i, slot := range mustPublish(t, s, tiny...) {
		want[slot] = tiny[i]
	}
	for slot, content := range want {
		if diff, err := differs(m, slot, content); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
	if len(want) != 5 {
		t.Errorf("live slots were used again: %v", want)
	}
}
