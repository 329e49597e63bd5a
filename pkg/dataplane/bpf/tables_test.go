package bpf

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// A tenant whose pods each have a policy of their own uses one generation for all tables of a change.
func TestTablesOfOnePlanHaveOneGeneration(t *testing.T) {
	n := startNode(t, restartStages[0])
	before := map[uint32]bool{}
	for _, slot := range n.state.tables.slots.Live() {
		before[slot] = true
	}
	n.mustApply(t, torturePolicy("b", 3), torturePolicy("c", 4), torturePolicy("d", 5),
		endpoint4("b", "cali0", "10.0.5.1", map[string]string{"app": "b"}), endpoint4("c", "cali1", "10.0.5.2", map[string]string{"app": "c"}),
		endpoint4("d", "cali2", "10.0.5.3", map[string]string{"app": "d"}))
	generations, tables := map[uint32]bool{}, 0
	for _, slot := range n.state.tables.slots.Live() {
		if before[slot] {
			continue
		}
		var shape bpf.Slot
		if err := n.kernel.maps.Map(bpf.MargayMapSlots).Lookup(slot, &shape); err != nil {
			t.Fatal(err)
		}
		generations[shape.Generation] = true
		tables++
	}
	if tables < 3 || len(generations) != 1 {
		t.Errorf("%d tables have generations %v, want one", tables, generations)
	}
}
