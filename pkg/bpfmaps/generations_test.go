package bpfmaps

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

func TestGenerationsGrowAcrossRestarts(t *testing.T) {
	m, o := openMaps(t)
	last := uint32(0)
	for range 3 {
		g, err := m.OpenGenerations()
		if err != nil {
			t.Fatal(err)
		}
		for range reserved + 10 {
			next, err := g.Next()
			if err != nil {
				t.Fatal(err)
			}
			if next <= last {
				t.Fatalf("%d after %d", next, last)
			}
			last = next
		}
		m.Close()
		m = mustOpen(t, o)
	}
	if last > 3*3*reserved {
		t.Errorf("restarts burn generations: at %d", last)
	}
	full := bpf.Slot{Generation: ^uint32(0) - 5}
	if err := m.Map(bpf.MargayMapSlots).Update(uint32(0), &full, ebpf.UpdateAny); err != nil {
		t.Fatal(err)
	}
	g, err := m.OpenGenerations()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := g.Next(); !errors.Is(err, ErrGenerations) {
		t.Errorf("%d (%v), want ErrGenerations", n, err)
	}
}

func mustGenerations(t *testing.T, m *Maps) *Generations {
	t.Helper()
	g, err := m.OpenGenerations()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func mustNext(t *testing.T, g *Generations) uint32 {
	t.Helper()
	n, err := g.Next()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGenerationsBeginAgainWithoutThoseInUse(t *testing.T) {
	m, _ := openMaps(t)
	g := mustGenerations(t, m)
	if first := mustNext(t, g); first <= bpf.StampOfAnother {
		t.Errorf("the first generation is %d, want one that is greater than each number that is none", first)
	}
	if g.Exhausted() {
		t.Error("generations are exhausted at the first")
	}
	g.BeginAgainAfter(3)
	mustNext(t, g)
	mustNext(t, g)
	if !g.Exhausted() {
		t.Error("generations are not exhausted after as many as there are")
	}
	if err := g.Announce(); err != nil {
		t.Fatal(err)
	}
	if err := g.BeginAgain(map[uint32]bool{2: true, 4: true}); err != nil {
		t.Fatal(err)
	}
	if a, b := mustNext(t, g), mustNext(t, g); a != 3 || b != 5 {
		t.Errorf("%d and %d after 2 and 4, which are in use; want 3 and 5", a, b)
	}
	if fault, err := g.Fault(); fault != "" || err != nil {
		t.Error(fault, err)
	}
	if err := g.BegunAgain(); err != nil {
		t.Fatal(err)
	}
	g.BeginAgainAfter(100)
	if g.Exhausted() || !g.Announced() {
		t.Errorf("exhausted %v, announced %v; want that another number is announced still", g.Exhausted(), g.Announced())
	}
}

// An agent that dies between BeginAgain and BegunAgain leaves numbers in use that the next one does not know of.
func TestAnAgentHandsOutNoGenerationBeforeItHasSeenWhichAreInUse(t *testing.T) {
	m, o := openMaps(t)
	g := mustGenerations(t, m)
	for range 5 {
		mustNext(t, g)
	}
	if err := g.BeginAgain(nil); err != nil {
		t.Fatal(err)
	}
	mustNext(t, g)
	m.Close()
	g = mustGenerations(t, mustOpen(t, o))
	if n, err := g.Next(); !errors.Is(err, ErrGenerations) || !g.Exhausted() {
		t.Errorf("%d (%v), exhausted %v; want ErrGenerations until they begin again", n, err, g.Exhausted())
	}
	if err := g.BeginAgain(map[uint32]bool{2: true, 3: true}); err != nil {
		t.Fatal(err)
	}
	if n := mustNext(t, g); n != 4 {
		t.Errorf("%d, want 4", n)
	}
}
