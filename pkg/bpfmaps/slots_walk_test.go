package bpfmaps

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
)

// Through any sequence of publications, releases, rows added and restarts of the agent, the live slots hold what was
// published in them. Slots are used again, even if their arrays have become too small: how many have arrays is bounded by
// how many were ever live, if packets leave released slots before the next publication. Otherwise it depends on how long
// a grace period lasts.
func TestSlotReuseNeverTouchesALiveSlot(t *testing.T) {
	seed := testutil.Number(t, seedEnv, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", seedEnv, seed)
	for _, packetsLeave := range []bool{false, true} {
		t.Run(map[bool]string{false: "at any time", true: "after the grace period"}[packetsLeave], func(t *testing.T) {
			m, o := openMaps(t)
			w := &slotWalk{live: map[uint32]SlotContent{}, rand: rand.New(rand.NewPCG(seed, 0)), packetsLeave: packetsLeave}
			w.m, w.s = m, mustSlots(t, m)
			for step := range 300 {
				w.step(t, o)
				if step%10 == 0 {
					w.compare(t, step)
				}
			}
		})
	}
}

// slotWalk is a random walk and what the live slots should hold.
type slotWalk struct {
	m            *Maps
	s            *Slots
	rand         *rand.Rand
	live         map[uint32]SlotContent
	seed         uint32
	packetsLeave bool // released slots before the next publication
}

// walkLive is how many slots are live at most: 29, and three published at once.
const walkLive = 32

func (w *slotWalk) step(t *testing.T, o Options) {
	t.Helper()
	switch what := w.rand.IntN(100); {
	case what < 4:
		inUse := w.s.Live()
		if err := errors.Join(w.s.Close(), w.m.Close()); err != nil {
			t.Fatal(err)
		}
		w.m = mustOpen(t, o)
		w.s = mustSlots(t, w.m, inUse...)
	case what < 40 && len(w.live) < walkLive-2:
		if w.packetsLeave {
			freeReleased(t, w.s)
		}
		w.publish(t)
	case what < 70 && len(w.live) > 0:
		w.patch(t)
	case len(w.live) > 0:
		w.release(t)
	}
}

// compare reads the live slots back. At most 8 slots and a quarter of those in use lie idle with arrays when a slot gets
// new ones.
func (w *slotWalk) compare(t *testing.T, step int) {
	t.Helper()
	for slot, want := range w.live {
		if diff, err := differs(w.m, slot, want); err != nil || diff != "" {
			t.Fatalf("step %d, slot %d: %s (%v)", step, slot, diff, err)
		}
	}
	if altered, _, err := w.s.Altered(w.m, w.s.Live(), 1<<40); err != nil || len(altered) > 0 {
		t.Fatalf("step %d: %v count as altered (%v)", step, altered, err)
	}
	u := w.s.Usage()
	if most := walkLive + 8 + walkLive/4; u.Live != len(w.live) || w.packetsLeave && u.Live+u.Idle > most {
		t.Errorf("step %d: %d live slots, %+v, want at most %d with arrays", step, len(w.live), u, most)
	}
}

func (w *slotWalk) publish(t *testing.T) {
	t.Helper()
	var contents []SlotContent
	for range 1 + w.rand.IntN(3) {
		w.seed += 1000
		rules := 1 + w.rand.IntN(200)
		if w.packetsLeave {
			rules = int(w.seed) / 1000 // more than ever before: the arrays of no idle slot are large enough
		}
		contents = append(contents, policyContent(rules, w.seed))
	}
	for i, slot := range mustPublish(t, w.s, contents...) {
		if _, inUse := w.live[slot]; inUse || slot == 0 {
			t.Fatalf("published in slot %d, which is in use", slot)
		}
		w.live[slot] = contents[i]
	}
}

func (w *slotWalk) pick() uint32 { return w.s.Live()[w.rand.IntN(len(w.live))] }

func (w *slotWalk) patch(t *testing.T) {
	t.Helper()
	slot := w.pick()
	class := w.rand.IntN(len(w.live[slot].Rows) * 32)
	w.live[slot].Rows[class/32].Cell[class%32] = 1
	err := error(nil)
	if w.rand.IntN(2) == 0 {
		err = w.s.PatchRows(slot, []Row{{uint32(class), 1}})
	} else {
		err = w.s.WriteRows(slot, []uint32{uint32(class)}, w.live[slot].Rows)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *slotWalk) release(t *testing.T) {
	t.Helper()
	slot := w.pick()
	if err := w.s.Release(slot); err != nil {
		t.Fatal(err)
	}
	delete(w.live, slot)
}
