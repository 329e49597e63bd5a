package bpf

import (
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
