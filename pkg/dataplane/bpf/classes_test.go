package bpf

import (
	"errors"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// leftSlots are slots that packets leave at once.
type leftSlots struct{}

func (leftSlots) Quiesce() <-chan error {
	left := make(chan error, 1)
	left <- nil
	return left
}

// A plan forgets a few classes more than it drops, however many are left: forgetting thousands at once would delay the next change. In the
// end none is left.
func TestAPlanForgetsFewClasses(t *testing.T) {
	kernel := bpfmaps.NewFake[bpf.ClassChunk, bpf.SetBits]("class_sets", 0)
	c := newClassSets(bpfmaps.NewTable(kernel), 100, false)
	c.open(leftSlots{})
	const many = 5 * fewForgotten
	var list []classes.Class
	var ids []uint32
	for id := range uint32(many) {
		list, ids = append(list, classes.Class{ID: id, Sets: []uint32{id}}), append(ids, id)
	}
	if err := c.add(list); err != nil {
		t.Fatal(err)
	}
	if len(kernel.Entries) != many {
		t.Fatalf("%d classes have sets, want %d", len(kernel.Entries), many)
	}
	c.retire(ids)
	left := many
	for _, dropped := range []int{0, 10, fewForgotten, 0, 0, 0} {
		if err := c.clean(dropped); err != nil {
			t.Fatal(err)
		}
		left = max(left-dropped-fewForgotten, 0)
		if len(kernel.Entries) != left || len(c.busy) != left {
			t.Errorf("after a plan that drops %d classes %d are left, and %d are busy; want %d", dropped, len(kernel.Entries), len(c.busy), left)
		}
	}
	if left != 0 {
		t.Errorf("%d are left in the end", left)
	}
}

// A tenant changes a policy that is walked all the time while the map is full: no attempt is made to record all classes before there is room for them.
func TestClassesAreRecordedOnceThereIsRoomForAll(t *testing.T) {
	kernel := bpfmaps.NewFake[bpf.ClassChunk, bpf.SetBits]("class_sets", 3)
	writes := 0
	counting := &bpfmaps.Faulty[bpf.ClassChunk, bpf.SetBits]{Kernel: kernel, Refuse: func(bpf.ClassChunk, bool) error {
		writes++
		return nil
	}}
	c := newClassSets(bpfmaps.NewTable[bpf.ClassChunk, bpf.SetBits](counting), 3, false)
	c.open(leftSlots{})
	must(t, c.add([]classes.Class{{ID: 2, Sets: []uint32{1}}, {ID: 3, Sets: []uint32{2, 600}}}))
	must(t, c.add([]classes.Class{{ID: 4, Sets: []uint32{3}}, {ID: 5, Sets: []uint32{4}}}))
	if len(c.unrecorded) != 2 {
		t.Fatalf("%d classes are unrecorded, want 2", len(c.unrecorded))
	}
	writes = 0
	for _, gone := range []uint32{2, 0} { // with the first one there is room for one of them
		if err := c.record(); !errors.Is(err, errUnrecorded) || writes > 0 {
			t.Errorf("without room: error %v, %d writes", err, writes)
		}
		if gone != 0 {
			c.retire([]uint32{gone})
			must(t, c.left(nil))
			must(t, c.clean(1))
			writes = 0
		}
	}
	c.retire([]uint32{3})
	must(t, c.left(nil))
	if err := c.record(); err != nil || len(c.unrecorded) > 0 {
		t.Errorf("with room: error %v, %d classes unrecorded", err, len(c.unrecorded))
	}
}
