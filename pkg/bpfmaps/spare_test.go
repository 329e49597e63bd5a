package bpfmaps

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// Whoever waits for new arrays puts in spare ones for the next policies of the size, which need not wait.
func TestPoliciesOfASizeFindSpareArrays(t *testing.T) {
	m, o := openMaps(t)
	s := mustSlots(t, m)
	want := map[uint32]SlotContent{}
	for i, spare := range []int{spareSlots, 2, 1, 0, spareSlots, 2} {
		content := policyContent(5, uint32(10*i))
		slot := mustPublish(t, s, content)[0]
		want[slot] = content
		if u := s.Usage(); u.Idle != spare || u.Live != i+1 {
			t.Errorf("after %d policies: %+v, want %d spare", i+1, u, spare)
		}
	}
	if s.Usage().LiveBytes > s.Usage().IdleBytes*3 {
		t.Errorf("spare arrays are smaller: %+v", s.Usage())
	}
	for slot, content := range want {
		if diff, err := differs(m, slot, content); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
	// An agent that starts again takes them for slots that were never used.
	s.Close()
	m.Close()
	m = mustOpen(t, o)
	s = mustSlots(t, m, s.Live()...)
	next := policyContent(5, 99)
	want[mustPublish(t, s, next)[0]] = next
	for slot, content := range want {
		if diff, err := differs(m, slot, content); err != nil || diff != "" {
			t.Errorf("after a restart, slot %d: %s (%v)", slot, diff, err)
		}
	}
}

// Large policies have none.
func TestLargePoliciesHaveNoSpareArrays(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	mustPublish(t, s, policyContent(spareBytes/64, 1))
	if u := s.Usage(); u.Idle != 0 {
		t.Errorf("%+v", u)
	}
}

// Policies of ever other sizes, none of which fits the arrays of another, do not leave more and more spare arrays behind.
func TestSpareArraysAreBounded(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	for i := range 80 {
		content := policyContent(8+8*i, uint32(i))
		content.Cells = make([]bpf.CellBlock, 8+8*(80-i))
		if err := s.Release(mustPublish(t, s, content)[0]); err != nil {
			t.Fatal(err)
		}
	}
	freeReleased(t, s)
	if u := s.Usage(); u.Idle > 24 {
		t.Errorf("%+v", u)
	}
}
