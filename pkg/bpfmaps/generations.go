package bpfmaps

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// reserved is how many generations are reserved by one write; as many at most are lost when an agent ends.
const reserved = 1 << 12

// lastGeneration is below every stamp that has the bit of a clock.
const lastGeneration = uint32(bpf.MargayCtStampRESET_AT) - 1

// beginAgainAfter is when generations are to begin again from the first one: half of them are left to try it until it works.
const beginAgainAfter = lastGeneration / 2

// Bits of slots[0].flags.
const (
	flagAnnounced  = 1 << iota // from Announce to Done
	flagBeginAgain             // from BeginAgain to BegunAgain
)

// ErrGenerations says that no generation can be handed out: they could not begin again from the first one.
var ErrGenerations = errors.New("no policy generation can be handed out, since generations could not begin again from the first one: see the log for why; it is tried again")

// Generations hands out the numbers that policies are published under. Flows are stamped with them, so none may be used
// twice while a flow may have it, not by a later agent either: the highest that may have been handed out is in slots[0].generation.
//
// When Exhausted reports it, they can begin again: BeginAgain, once no flow has any but those in use; then those are replaced; BegunAgain,
// once no flow has the replaced ones either.
//
// Not safe for concurrent use.
type Generations struct {
	slots          *ebpf.Map
	next, reserved uint32
	flags          uint32
	most           uint32
	held           map[uint32]bool // not to be handed out; nil after BeginAgain of an earlier agent: not known
}

// OpenGenerations goes on after the highest generation that any agent may have handed out.
func (m *Maps) OpenGenerations() (*Generations, error) {
	g := &Generations{slots: m.maps[bpf.MargayMapSlots], most: beginAgainAfter}
	shape, err := readShape(g.slots, 0)
	if err != nil {
		return nil, err
	}
	g.next, g.reserved, g.flags = shape.Generation, shape.Generation, shape.Flags
	return g, nil
}

// Announce says that something is about to change for which live flows are to be judged again, and Done that they have
// been. Done without Announce writes nothing.
func (g *Generations) Announce() error { return g.write(g.reserved, g.flags|flagAnnounced) }

// Done is the reverse of Announce.
func (g *Generations) Done() error {
	if !g.Announced() {
		return nil
	}
	return g.write(g.reserved, g.flags&^flagAnnounced)
}

// Announced reports whether Done has not followed the last Announce, of this agent or of an earlier one.
func (g *Generations) Announced() bool { return g.flags&flagAnnounced != 0 }

// Exhausted reports whether generations are to begin again, also if BegunAgain has not followed BeginAgain, of this agent or an earlier one.
func (g *Generations) Exhausted() bool { return g.next > g.most || g.flags&flagBeginAgain != 0 }

// Use is how many generations have been handed out since they began, and how many there are.
func (g *Generations) Use() (handedOut, most uint32) { return g.next, lastGeneration }

// BeginAgain makes generations begin again from the first one. Those in held are left out until BegunAgain: no flow may have any other
// one.
func (g *Generations) BeginAgain(held map[uint32]bool) error {
	if err := g.write(bpf.StampOfAnother, g.flags|flagBeginAgain); err != nil {
		return err
	}
	g.next, g.held = g.reserved, map[uint32]bool{}
	maps.Copy(g.held, held)
	return nil
}

// BegunAgain says that no flow, and no endpoint, has a generation from before BeginAgain.
func (g *Generations) BegunAgain() error {
	if err := g.write(g.reserved, g.flags&^flagBeginAgain); err != nil {
		return err
	}
	g.held = nil
	return nil
}

// BeginAgainAfter replaces the number of generations after which Exhausted reports that they are to begin again. For tests.
func (g *Generations) BeginAgainAfter(n uint32) { g.most = n }

func (g *Generations) write(reserved, flags uint32) error {
	if err := writeShape(g.slots, 0, bpf.Slot{Generation: reserved, Flags: flags}); err != nil {
		return err
	}
	g.reserved, g.flags = reserved, flags
	return nil
}

// Next is a generation that no flow has, greater than all that were handed out since they began. It is greater than StampOfAnother.
func (g *Generations) Next() (uint32, error) {
	if g.flags&flagBeginAgain != 0 && g.held == nil {
		return 0, ErrGenerations
	}
	for {
		if g.next == g.reserved {
			if g.reserved > lastGeneration-reserved {
				return 0, ErrGenerations
			}
			// Reserve before use: an agent that dies now has handed out none of these.
			if err := g.write(g.reserved+reserved, g.flags); err != nil {
				return 0, err
			}
		}
		g.next++
		if g.next > bpf.StampOfAnother && !g.held[g.next] {
			return g.next, nil
		}
	}
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
	if err != nil || shape == (bpf.Slot{Generation: g.reserved, Flags: g.flags}) {
		return "", err
	}
	return fmt.Sprintf("%s[0]: the highest generation is %d, %d was written", bpf.MargayMapSlots, shape.Generation, g.reserved), nil
}
