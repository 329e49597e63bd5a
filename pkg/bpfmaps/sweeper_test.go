package bpfmaps

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// addFlows adds n flows of each family that were last seen at that time of the programs' clock.
func addFlows(t *testing.T, m *Maps, n int, seen uint32) {
	t.Helper()
	for i := range n {
		entry := bpf.CtEntry{Seen: seen}
		if err := m.Map(bpf.MargayMapCt4).Put(bpf.Ct4Key{A: [4]byte{10}, Pa: uint16(i), Proto: 17}, entry); err != nil {
			t.Fatal(err)
		}
		if err := m.Map(bpf.MargayMapCt6).Put(bpf.Ct6Key{A: [16]byte{0xfd}, Pa: uint16(i), Proto: 17}, entry); err != nil {
			t.Fatal(err)
		}
	}
}

// round sweeps all tables once and returns the number of slices.
func round(t *testing.T, s *Sweeper) int {
	t.Helper()
	for slices := 1; ; slices++ {
		done, err := s.Slice()
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return slices
		}
	}
}

func openSweeper(t *testing.T, m *Maps) (*Sweeper, *Programs) {
	t.Helper()
	p, err := m.LoadPrograms(bpf.Config{Hz: 250, TimeoutUdp: 60})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	s, err := m.Flows.NewSweeper(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, p
}

func TestARoundLooksAtEachFlowOfBothTablesInSlices(t *testing.T) {
	testutil.Privileged(t)
	const most = bpf.MargayFlowLimitsWALK_KEYS
	const flows = int(5 * most / 2)
	sizes := maps.Clone(small)
	sizes[bpf.MargayMapCt4], sizes[bpf.MargayMapCt6] = uint32(4*most), uint32(4*most)
	m := mustOpen(t, Options{BPFFS: testutil.BPFFS(t), Instance: "test", MaxEntries: sizes})
	s, _ := openSweeper(t, m)
	round(t, s)
	now, _, err := FlowClock()
	if err != nil {
		t.Fatal(err)
	}
	addFlows(t, m, flows, now+1<<20) // never expired
	_, before, err := m.Flows.Swept()
	if err != nil {
		t.Fatal(err)
	}
	if n := round(t, s); n < 6 {
		t.Errorf("%d slices for %d flows", n, 2*flows)
	}
	open, half, err := m.Flows.Swept()
	if err != nil {
		t.Fatal(err)
	}
	if n := half.Entries - before.Entries; n != uint64(2*flows) || half.Expired != before.Expired || open.Runs != 4 {
		t.Errorf("looked at %d flows of %d; %+v, %+v", n, 2*flows, open, half)
	}
	addFlows(t, m, flows, now-1<<20)
	round(t, s)
	for flow, err := range m.Flows.All() {
		t.Fatalf("%+v is left (%v)", flow, err)
	}
}

// TestPinnedProgramsOfAnotherTypeAreNotRun: an agent of before may have pinned iterators.
func TestPinnedProgramsOfAnotherTypeAreNotRun(t *testing.T) {
	m, _ := openMaps(t)
	_, p := openSweeper(t, m)
	if _, err := m.PinnedSweeper(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing is pinned: %v", err)
	}
	if err := m.PinSweeps(p); err != nil {
		t.Fatal(err)
	}
	pinned, err := m.PinnedSweeper()
	if err != nil {
		t.Fatal(err)
	}
	round(t, pinned)
	if err := pinned.Close(); err != nil {
		t.Error(err)
	}
	other, err := p.Get(bpf.MargayProgEmpty)
	if err != nil {
		t.Fatal(err)
	}
	if err := replacePin(other, filepath.Join(m.Dir(), SweepsName, bpf.MargayProgSweep6)); err != nil {
		t.Fatal(err)
	}
	if _, err := m.PinnedSweeper(); err == nil || errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "SchedCLS") {
		t.Errorf("%v", err)
	}
}
