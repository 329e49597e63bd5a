package bpfmaps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// mapIDs are the ids of all maps that are pinned.
func mapIDs(t *testing.T, o Options) map[string]ebpf.MapID {
	t.Helper()
	m, err := OpenPinned(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ids := map[string]ebpf.MapID{}
	for name, opened := range m.maps {
		if ids[name], err = idOf(opened); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// Whatever somebody does to the pins of a running agent, afterwards the same maps are there for the next agent, and no second agent starts.
func TestPinsThatSomebodyRemovesAreMadeAgain(t *testing.T) {
	for _, c := range []struct {
		what   string
		repins func(all int) int
		damage func(t *testing.T, o Options, m *Maps)
	}{
		{"nothing", func(int) int { return 0 }, func(*testing.T, Options, *Maps) {}},
		{"one pin", func(int) int { return 1 }, func(t *testing.T, _ Options, m *Maps) {
			must(t, os.Remove(filepath.Join(m.dir, bpf.MargayMapCt4)))
		}},
		{"the directory", func(all int) int { return all }, func(t *testing.T, o Options, _ *Maps) {
			must(t, os.RemoveAll(InstanceDir(o.BPFFS, o.Instance)))
		}},
		{"the file system", func(all int) int { return all }, func(t *testing.T, o Options, _ *Maps) {
			must(t, unix.Unmount(o.BPFFS, unix.MNT_DETACH))
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			m, o := openMaps(t)
			s, err := m.OpenSlots(nil, nil)
			must(t, err)
			defer s.Close()
			slots := mustPublish(t, s, policyContent(5, 1))
			before := mapIDs(t, o)
			seen := m.PinDir()
			testutil.WaitFor(t, time.Minute, "the file system's clock to go on", func() bool {
				return time.Since(time.Unix(seen.changed.Unix())) > 20*time.Millisecond
			})
			c.damage(t, o, m)
			want := c.repins(len(before))
			if (m.PinDir() == seen) != (want == 0) {
				t.Errorf("the directory was %v and is %v", seen, m.PinDir())
			}
			if m.Pinned() != (want == 0) {
				t.Errorf("all maps are pinned: %t", m.Pinned())
			}
			n, err := m.Repin()
			if err != nil || n != want || !m.Pinned() {
				t.Fatalf("%d pinned again, want %d: %v", n, want, err)
			}
			must(t, s.Repin())
			for name, id := range mapIDs(t, o) {
				if before[name] != id {
					t.Errorf("map %s is another one", name)
				}
			}
			if _, err := os.Stat(filepath.Join(slotDir(m.dir, slots[0]), partNames[partRules])); err != nil {
				t.Errorf("the policy is not pinned: %v", err)
			}
			if _, err := os.Stat(m.LinkDir()); n > 1 && err != nil {
				t.Errorf("links cannot be pinned: %v", err)
			}
			if second, err := Open(o); !errors.Is(err, ErrLocked) {
				t.Errorf("a second agent opens the maps (%t): %v", second != nil, err)
			}
			if n, err := m.Repin(); n != 0 || err != nil {
				t.Errorf("at the second time %d: %v", n, err)
			}
		})
	}
}

// If another agent has made itself at home where the pins were, they are its own.
func TestPinsOfAnotherAgentStay(t *testing.T) {
	m, o := openMaps(t)
	must(t, os.RemoveAll(InstanceDir(o.BPFFS, o.Instance)))
	second := mustOpen(t, o)
	if n, err := m.Repin(); n != 0 || !errors.Is(err, ErrLocked) {
		t.Errorf("%d pinned again, %v; want none and that another agent runs", n, err)
	}
	must(t, second.Close())
	ids := mapIDs(t, o)
	if n, err := m.Repin(); n != 0 || !errors.Is(err, errForeignPin) {
		t.Errorf("%d pinned again, %v; want none and that the maps are of another agent", n, err)
	}
	for name, id := range mapIDs(t, o) {
		if ids[name] != id {
			t.Errorf("map %s is another one", name)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
