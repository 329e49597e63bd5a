package bpfmaps

import (
	"context"
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

func TestHashesThatProgramsFillAreCounted(t *testing.T) {
	m, _ := openMaps(t)
	for i := range uint16(300) {
		if err := m.Map(bpf.MargayMapCt4).Put(&bpf.Ct4Key{Pa: i}, &bpf.CtEntry{}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]MapUse{bpf.MargayMapCt4: {300, 1 << 10}, bpf.MargayMapCt6: {0, 1 << 10}}
	got, err := m.Flows.Use(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err = m.Flows.Use(ended); !errors.Is(err, context.Canceled) || got[bpf.MargayMapCt4].Entries != 0 {
		t.Errorf("after its context has ended: %v (%v)", got, err)
	}
}

// TestEveryHashThatProgramsFillIsCounted, so that a new one is not forgotten.
func TestEveryHashThatProgramsFillIsCounted(t *testing.T) {
	spec, err := bpf.LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]bool{bpf.MargayMapDrops: true} // by Drops.All
	m, _ := openMaps(t)
	use, err := m.Flows.Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name := range use {
		counted[name] = true
	}
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapIp6Host, bpf.MargayMapClassSets, bpf.MargayMapSetNames,
		bpf.MargayMapRuleNames, bpf.MargayMapEndpointNames, bpf.MargayMapEndpointPlaces, bpf.MargayMapStaged} {
		counted[name] = true // the agent's own, which it counts itself
	}
	for name, ms := range spec.Maps {
		switch ms.Type {
		case ebpf.Hash, ebpf.LRUHash, ebpf.PerCPUHash:
			if !counted[name] {
				t.Errorf("map %s is not counted", name)
			}
		}
	}
}

func TestEventsAreCountedWhetherReadOrNot(t *testing.T) {
	m, _ := openMaps(t)
	const sent = 100 // enough for headers to add up to events
	for i := range int32(sent) {
		sendEvent(t, m, i)
	}
	events, err := m.Events.Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Read(); err != nil {
		t.Fatal(err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	budgets := make([]bpf.MargayEventBudget, cpus)
	budgets[0].Suppressed, budgets[cpus-1].Suppressed = 5, 7
	if err := m.Map(bpf.MargayMapEventBudgets).Put(uint32(0), budgets); err != nil {
		t.Fatal(err)
	}
	want := EventCounts{Written: sent, Read: 1, Suppressed: 12}
	if cpus == 1 {
		want.Suppressed = 7
	}
	if got, err := m.Events.Counts(); err != nil || got != want {
		t.Errorf("%+v (%v), want %+v", got, err, want)
	}
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSweepsAreToldApart(t *testing.T) {
	m, _ := openMaps(t)
	want := [2]bpf.MargaySweep{{Entries: 10, Expired: 4, Runs: 1}, {Entries: 20, Expired: 6, Runs: 2}}
	for kind := range want {
		if err := m.Map(bpf.MargayMapSwept).Put(uint32(kind), &want[kind]); err != nil {
			t.Fatal(err)
		}
	}
	if open, half, err := m.Flows.Swept(); err != nil || open != want[0] || half != want[1] {
		t.Errorf("%+v %+v (%v)", open, half, err)
	}
}
