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
