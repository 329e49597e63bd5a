package bpf

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// classSets are the sets of each class in the kernel, which the interpreter reads. A class that was dropped keeps them, and
// its number, until no packet can still be at work with it: it looked the class up before its address changed.
type classSets struct {
	sets    *bpfmaps.Table[bpf.ClassChunk, bpf.SetBits]
	chunks  map[uint32][]uint32 // of each class in sets, so that forgetting a few does not walk through all
	slots   quiescer            // knows when packets have left
	dropped map[uint32]bool     // still in sets, dropped while quiet is waited for
	retired map[uint32]bool     // still in sets, dropped before
	leaving []uint32            // still in sets, and packets have left them
	quiet   <-chan error        // delivers when retired can be removed; nil: nothing to wait for
}

func newClassSets(sets *bpfmaps.Table[bpf.ClassChunk, bpf.SetBits]) *classSets {
	return &classSets{sets: sets, chunks: map[uint32][]uint32{}, dropped: map[uint32]bool{}}
}

// open is called once the slots are open.
func (c *classSets) open(slots quiescer) { c.slots = slots }

// fewForgotten is how many classes more are forgotten with a plan than it drops, so that fewer and fewer are left: some 0.2 ms.
const fewForgotten = 64

// add writes the sets of new classes. A class that cannot be written has no address; see incomplete. If there is no room for
// them, all classes are forgotten that may be.
func (c *classSets) add(list []classes.Class) error {
	for _, class := range list {
		for chunk, bits := range chunksOf(class.Sets) {
			c.set(class.ID, chunk, bits)
		}
	}
	if c.sets.Sync() == nil {
		return nil
	}
	if err := c.forget(math.MaxInt); err != nil || c.sets.Pending() == 0 {
		return err
	}
	if c.quiet != nil { // writeLeft reports it; dropped classes may make room
		if err := c.left(<-c.quiet); err != nil {
			return err
		}
	}
	return c.forget(math.MaxInt)
}

func (c *classSets) set(class, chunk uint32, bits bpf.SetBits) {
	if !slices.Contains(c.chunks[class], chunk) {
		c.chunks[class] = append(c.chunks[class], chunk)
	}
	c.sets.Set(bpf.ClassChunk{Class: class, Chunk: chunk}, bits)
}

// chunksOf is the bitmap of set numbers as class_sets has it.
func chunksOf(sets []uint32) map[uint32]bpf.SetBits {
	chunks := map[uint32]bpf.SetBits{}
	for _, n := range sets {
		bits := chunks[n>>9]
		bits.Bits[n>>6&7] |= 1 << (n & 63)
		chunks[n>>9] = bits
	}
	return chunks
}

// setsIn is the reverse of chunksOf for one chunk.
func setsIn(chunk uint32, bits bpf.SetBits) []uint32 {
	var sets []uint32
	for w, word := range bits.Bits {
		for n := range uint32(64) {
			if word>>n&1 != 0 {
				sets = append(sets, chunk<<9|uint32(w)<<6|n)
			}
		}
	}
	return sets
}

// incomplete reports whether the sets of a class could not be written, without which an interpreted policy cannot judge
// it.
func (c *classSets) incomplete(class uint32) bool {
	if c.sets.Pending() == 0 {
		return false
	}
	return slices.ContainsFunc(c.sets.Unwritten(), func(key bpf.ClassChunk) bool { return key.Class == class })
}

// retire drops classes.
func (c *classSets) retire(list []uint32) {
	for _, class := range list {
		c.dropped[class] = true
	}
	c.quiesce()
}

// quiesce begins to wait until packets have left the classes that have been dropped.
func (c *classSets) quiesce() {
	if c.quiet == nil && len(c.dropped) > 0 {
		c.retired, c.dropped = c.dropped, map[uint32]bool{}
		c.quiet = c.slots.Quiesce()
	}
}

// busy are the classes whose numbers no other may get, since packets may be at work with them. The map is the caller's.
func (c *classSets) busy() map[uint32]bool {
	all := maps.Clone(c.dropped)
	maps.Copy(all, c.retired)
	for _, class := range c.leaving {
		all[class] = true
	}
	return all
}

// clean forgets classes after a plan that drops so many: some more, so that fewer and fewer are left, and not all, so that no plan takes long.
func (c *classSets) clean(dropped int) error { return c.forget(dropped + fewForgotten) }

// forget removes the sets of classes that packets have left, of so many of them.
func (c *classSets) forget(most int) error {
	select {
	case err := <-c.quiet:
		if err := c.left(err); err != nil {
			return err
		}
	default:
	}
	most = min(most, len(c.leaving))
	if most == 0 {
		return nil
	}
	for _, class := range c.leaving[:most] {
		for _, chunk := range c.chunks[class] {
			c.sets.Delete(bpf.ClassChunk{Class: class, Chunk: chunk})
		}
		delete(c.chunks, class)
	}
	if c.leaving = c.leaving[most:]; len(c.leaving) == 0 {
		c.leaving = nil
	}
	_ = c.sets.Sync() // a class whose entries remain keeps its number (busyClasses), and writeLeft reports it
	return nil
}

// left is called when packets have left the retired classes, or that cannot be known.
func (c *classSets) left(err error) error {
	if c.quiet = nil; err != nil {
		c.quiet = c.slots.Quiesce() // the next attempt waits again
		return fmt.Errorf("wait for packets to leave: %w", err)
	}
	c.leaving = slices.AppendSeq(c.leaving, maps.Keys(c.retired))
	c.retired = nil
	c.quiesce()
	return nil
}

// wait waits until nothing uses the maps for retired classes any more.
func (c *classSets) wait() {
	for c.quiet != nil {
		<-c.quiet
		c.quiet = nil
		c.quiesce()
	}
}

// adopt makes the sets in the kernel the desired ones, and returns them by class.
func (c *classSets) adopt() ([]classes.Class, error) {
	chunks, err := keep(c.sets)
	members := map[uint32][]uint32{}
	for key, bits := range chunks {
		c.chunks[key.Class] = append(c.chunks[key.Class], key.Chunk)
		members[key.Class] = append(members[key.Class], setsIn(key.Chunk, bits)...)
	}
	var list []classes.Class
	for class, numbers := range members {
		slices.Sort(numbers)
		list = append(list, classes.Class{ID: class, Sets: numbers})
	}
	slices.SortFunc(list, func(a, b classes.Class) int { return int(int64(a.ID) - int64(b.ID)) })
	return list, err
}
