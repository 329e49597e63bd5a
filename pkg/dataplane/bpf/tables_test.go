package bpf

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
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

// An agent was killed while a table had no room for the class of an address, which it denied for that. The next one makes the table whole.
func TestATableThatLacksRowsIsMadeAgainAfterARestart(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	n := openNode(t, dir, nil)
	now := restartStages[0]
	n.mustApply(t, now.updates()...)
	n.wantStage(t, "before", now)
	ep, _ := n.kernel.endpoints.Get(1000)
	slot, _ := bpfmaps.SplitPolicyWord(ep.Ingress)
	var rows []bpfmaps.Row
	for _, class := range n.state.plans.Plan.Classes {
		rows = append(rows, bpfmaps.Row{Class: class.ID})
	}
	for class := range n.state.classes.chunks {
		rows = append(rows, bpfmaps.Row{Class: class})
	}
	must(t, n.state.tables.slots.PatchRows(slot, rows))
	if n.passesTo(t, tortureA, "10.0.0.1", "10.0.0.10", 80) {
		t.Fatal("the table has rows: the test tests nothing")
	}
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, now.updates()...)
	n.goOn(t)
	n.wantStage(t, "after the restart", now)
}
