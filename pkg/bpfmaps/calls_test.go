package bpfmaps

import (
	"errors"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Publishing, making room for classes and giving memory back do not wait for the RCU grace period in which the kernel's calls
// return: here that does not end before the test lets it.
func TestNothingWaitsForAGracePeriodOfTheKernel(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	over := make(chan struct{})
	end := func() {
		if over != nil {
			close(over)
			over = nil
		}
	}
	t.Cleanup(end) // before the one of mustSlots, which waits for all calls
	kernel, period := s.arrays.calls.update, over
	s.arrays.calls.update = func(outer *ebpf.Map, slots, fds []uint32) error {
		err := kernel(outer, slots, fds)
		<-period
		return err
	}
	want := map[uint32]SlotContent{}
	for i := range 4 {
		content := policyContent(5+i, uint32(10*i))
		want[mustPublish(t, s, content)[0]] = content
	}
	slot := mustPublish(t, s, policyContent(4, 99))[0]
	rows := append(policyContent(4, 99).Rows, make([]bpf.CellBlock, 40)...)
	rows[43].Cell[1] = 3
	if err := s.EnlargeRows([]uint32{slot}, [][]bpf.CellBlock{rows}); err != nil {
		t.Fatal(err)
	}
	content := policyContent(4, 99)
	content.Rows = rows
	want[slot] = content
	for slot, content := range want {
		if diff, err := differs(m, slot, content); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
	if n := len(s.arrays.calls.underWay); n != 31 {
		t.Errorf("%d calls are under way, want six for each policy and one more", n)
	}
	end()
	s.arrays.calls.wait()
	if n := len(s.arrays.calls.underWay); n != 0 {
		t.Errorf("%d calls are under way in the end", n)
	}
}

// What the kernel refuses in a call for several slots is tried for each of them, and the others have theirs.
func TestACallThatFailsConcernsOneSlot(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	s.arrays.calls.update = func(*ebpf.Map, []uint32, []uint32) error { return errors.New("no memory") }
	contents := []SlotContent{policyContent(5, 1), policyContent(6, 2)}
	for i, slot := range mustPublish(t, s, contents...) {
		if diff, err := differs(m, slot, contents[i]); err != nil || diff != "" {
			t.Errorf("slot %d: %s (%v)", slot, diff, err)
		}
	}
}

// A call whose thread gets no processor is not waited for by keeping one: it may be that one.
func TestWhoWaitsForACallLeavesItsProcessor(t *testing.T) {
	m, _ := openMaps(t)
	s := mustSlots(t, m)
	kernel, naps, slept := s.arrays.calls.update, 0, make(chan struct{})
	s.arrays.calls.sleep = func() {
		if naps++; naps == 3*int(parts) {
			close(slept)
		}
		nap()
	}
	s.arrays.calls.update = func(outer *ebpf.Map, slots, fds []uint32) error {
		select {
		case <-slept:
			return kernel(outer, slots, fds)
		case <-time.After(time.Minute):
			return errors.New("the caller never sleeps")
		}
	}
	content := policyContent(5, 1)
	slot := mustPublish(t, s, content)[0]
	if diff, err := differs(m, slot, content); err != nil || diff != "" {
		t.Errorf("slot %d: %s (%v)", slot, diff, err)
	}
}
