package bpfmaps

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// reserved is how many generations are reserved by one write; as many at most are lost when an agent ends.
const reserved = 1 << 12

// ErrGenerations says that all generations have been handed out: four billion publications.
var ErrGenerations = errors.New("no policy generations left; remove the instance's pinned directory to start over")

// Generations hands out the numbers that policies are published under. Flows are stamped with them, so none may ever
// be used twice, not by a later agent either: the highest that may have been handed out is in slots[0].generation.
//
// Not safe for concurrent use.
type Generations struct {
	slots          *ebpf.Map
	next, reserved uint32
	announced      uint32 // slots[0].flags: 1 from Announce to Done
}

// OpenGenerations goes on after the highest generation that any agent may have handed out.
func (m *Maps) OpenGenerations() (*Generations, error) {
	g := &Generations{slots: m.maps[bpf.MargayMapSlots]}
	shape, err := readShape(g.slots, 0)
	if err != nil {
		return nil, err
	}
	g.next, g.reserved, g.announced = shape.Generation, shape.Generation, shape.Flags
	return g, nil
}

// Announce says that something is about to change for which live flows are to be judged again, and Done that they have
// been. Done without Announce writes nothing.
func (g *Generations) Announce() error { return g.announce(1) }

// Done is the reverse of Announce.
func (g *Generations) Done() error {
	if g.announced == 0 {
		return nil
	}
	return g.announce(0)
}

// Announced reports whether Done has not followed the last Announce, of this agent or of an earlier one.
func (g *Generations) Announced() bool { return g.announced != 0 }

func (g *Generations) announce(flags uint32) error {
	if err := writeShape(g.slots, 0, bpf.Slot{Generation: g.reserved, Flags: flags}); err != nil {
		return err
	}
	g.announced = flags
	return nil
}

// Next is a generation never handed out before, greater than all that were. It is not 0.
func (g *Generations) Next() (uint32, error) {
	if g.next == g.reserved {
		if g.reserved > math.MaxUint32-reserved {
			return 0, ErrGenerations
		}
		// Reserve before use: an agent that dies now has handed out none of these.
		if err := writeShape(g.slots, 0, bpf.Slot{Generation: g.reserved + reserved, Flags: g.announced}); err != nil {
			return 0, err
		}
		g.reserved += reserved
	}
	g.next++
	return g.next, nil
}

func readShape(slots *ebpf.Map, slot uint32) (bpf.Slot, error) {
	var shape bpf.Slot
	if err := slots.Lookup(&slot, &shape); err != nil {
		return shape, fmt.Errorf("read map %s key %d: %w", bpf.MargayMapSlots, slot, err)
	}
	return shape, nil
}

func writeShape(slots *ebpf.Map, slot uint32, shape bpf.Slot) error {
	if err := slots.Update(&slot, &shape, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapSlots, slot, err)
	}
	return nil
}

// Fault says how what the map has of handed-out generations is not what was written there; empty: it is.
func (g *Generations) Fault() (string, error) {
	shape, err := readShape(g.slots, 0)
	if err != nil || shape == (bpf.Slot{Generation: g.reserved, Flags: g.announced}) {
		return "", err
	}
	return fmt.Sprintf("%s[0]: the highest generation is %d, %d was written", bpf.MargayMapSlots, shape.Generation, g.reserved), nil
}
