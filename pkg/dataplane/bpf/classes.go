package bpf

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// classSets are the sets of each class in the kernel. The programs read them where a policy is walked rule by rule, and an agent that
// starts learns from them what classes there are. A class that was dropped keeps them, and its number, until no packet can still be at
// work with it: it looked the class up before its address changed.
//
// Classes that the map has no room for are unrecorded. Tables have rows for them, so only walked policies cannot judge their addresses:
// while there are such classes, none is in force.
type classSets struct {
	sets    *bpfmaps.Table[bpf.ClassChunk, bpf.SetBits]
	chunks  map[uint32][]uint32 // of each class in sets, so that forgetting a few does not walk through all
	slots   quiescer            // knows when packets have left
	busy    map[uint32]bool     // dropped and still in sets: no other class may get their numbers, since packets may be at work with them
	dropped []uint32            // of busy, dropped while quiet is waited for
	retired []uint32            // of busy, dropped before
	leaving []uint32            // of busy; packets have left them
	quiet   <-chan error        // delivers when retired can be removed; nil: nothing to wait for

	most       int                 // entries that the map has room for
	walked     bool                // every policy is walked, so no class may be unrecorded
	unrecorded map[uint32][]uint32 // the sets of those classes; nil: unknown, since an earlier agent left them out
	version    uint64              // grows when they change
}

// newClassSets is for a map that has room for so many entries.
func newClassSets(sets *bpfmaps.Table[bpf.ClassChunk, bpf.SetBits], most int, walked bool) *classSets {
	return &classSets{sets: sets, most: most, chunks: map[uint32][]uint32{}, busy: map[uint32]bool{}, walked: walked, unrecorded: map[uint32][]uint32{}}
}

// open is called once the slots are open.
func (c *classSets) open(slots quiescer) { c.slots = slots }

// fewForgotten is how many classes more are forgotten with a plan than it drops, so that fewer and fewer are left: some 0.2 ms.
const fewForgotten = 64

// add writes the sets of new classes. If there is no room for them, all classes are forgotten that may be. A class that cannot be
// written is unrecorded, or has no address if every policy is walked; see incomplete.
func (c *classSets) add(list []classes.Class) error {
	for _, class := range list {
		if _, again := c.unrecorded[class.ID]; again {
			continue // this step is taken once more
		}
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
	if !c.walked {
		c.leaveOut(list)
		return nil
	}
	if c.quiet != nil { // writeLeft reports it; dropped classes may make room
		if err := c.left(<-c.quiet); err != nil {
			return err
		}
	}
	return c.forget(math.MaxInt)
}

// leaveOut makes those of the new classes unrecorded whose sets could not be written. They have no address yet, so the order in which the
// rest of their entries is removed does not matter.
func (c *classSets) leaveOut(list []classes.Class) {
	missing := map[uint32]bool{}
	for _, key := range c.sets.Unwritten() {
		missing[key.Class] = true
	}
	for _, class := range list {
		if !missing[class.ID] {
			continue
		}
		for _, chunk := range c.chunks[class.ID] {
			c.sets.Delete(bpf.ClassChunk{Class: class.ID, Chunk: chunk})
		}
		delete(c.chunks, class.ID)
		c.unrecorded[class.ID] = class.Sets
		c.version++
	}
	_ = c.sets.Sync() // what is left of a class keeps addresses from it, and writeLeft reports it
}

// errUnrecorded says why a policy is not in force.
var errUnrecorded = errors.New("the policy is walked rule by rule, and map class_sets has no room for the sets of all addresses: raise --map-size class_sets")

// partial is in chunk 0 of a class that has addresses while not all of its chunks are written. No set has the number 0.
const partial = 1

// missing notes the classes of addresses that an earlier agent has left out.
func (c *classSets) missing(known []classes.Class, addrs []classes.AddrChange) {
	recorded := map[uint32]bool{classes.None4: true, classes.None6: true}
	for _, class := range known {
		recorded[class.ID] = true
	}
	for _, a := range addrs {
		if !recorded[a.Class] {
			c.unrecorded[a.Class] = nil
		}
	}
}

// record writes the sets of all unrecorded classes. They have addresses, so an agent that starts must not believe a part of their sets.
// The error says that there is no room for all; then they stay unrecorded.
func (c *classSets) record() error {
	if err := c.forget(math.MaxInt); err != nil {
		return err
	}
	for class, sets := range c.unrecorded {
		if sets == nil {
			return fmt.Errorf("%w: those of class %d are not known until its addresses have another one", errUnrecorded, class)
		}
	}
	if !c.fits() { // each change of a policy that is walked comes here, and an attempt takes tens of milliseconds
		return errUnrecorded
	}
	for _, write := range []func(class uint32, chunks map[uint32]bpf.SetBits){c.begin, c.write, c.complete} {
		for class, sets := range c.unrecorded {
			write(class, chunksOf(sets))
		}
		if err := c.sets.Sync(); err != nil {
			c.undo()
			return fmt.Errorf("%w: %w", errUnrecorded, rootOf(err))
		}
	}
	clear(c.unrecorded)
	c.version++
	return nil
}

// fits reports whether the map has room for the sets of all unrecorded classes.
func (c *classSets) fits() bool {
	room := c.most - c.sets.Len()
	for class, sets := range c.unrecorded {
		last := uint32(math.MaxUint32)
		for _, set := range sets { // ascending
			if chunk := set >> 9; chunk != last {
				last = chunk
				if _, there := c.sets.Believed(bpf.ClassChunk{Class: class, Chunk: chunk}); !there {
					room--
				}
			}
		}
		if room < 0 {
			return false
		}
	}
	return true
}

func (c *classSets) begin(class uint32, chunks map[uint32]bpf.SetBits) {
	first := chunks[0]
	if len(chunks) > 1 {
		first.Bits[0] |= partial
	}
	if first != (bpf.SetBits{}) {
		c.set(class, 0, first)
	}
}

func (c *classSets) write(class uint32, chunks map[uint32]bpf.SetBits) {
	for chunk, bits := range chunks {
		if chunk > 0 {
			c.set(class, chunk, bits)
		}
	}
}

func (c *classSets) complete(class uint32, chunks map[uint32]bpf.SetBits) {
	if first, ok := chunks[0]; ok {
		c.set(class, 0, first)
	} else {
		c.sets.Delete(bpf.ClassChunk{Class: class})
	}
}

// undo has the table want what the kernel has.
func (c *classSets) undo() {
	for _, key := range c.sets.Unwritten() {
		if bits, ok := c.sets.Believed(key); ok {
			c.sets.Set(key, bits)
		} else {
			c.sets.Delete(key)
		}
	}
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

// retire drops classes. A step that is taken again drops them once.
func (c *classSets) retire(list []uint32) {
	for _, class := range list {
		if !c.busy[class] {
			c.busy[class] = true
			c.dropped = append(c.dropped, class)
		}
	}
	c.quiesce()
}

// quiesce begins to wait until packets have left the classes that have been dropped.
func (c *classSets) quiesce() {
	if c.quiet == nil && len(c.dropped) > 0 {
		c.retired, c.dropped = c.dropped, nil
		c.quiet = c.slots.Quiesce()
	}
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
		if _, ok := c.unrecorded[class]; ok {
			delete(c.unrecorded, class)
			c.version++
		}
		delete(c.busy, class)
	}
	if c.leaving = c.leaving[most:]; len(c.leaving) == 0 {
		c.leaving = nil
	}
	if len(c.busy) == 0 {
		c.busy = map[uint32]bool{}
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
	c.leaving, c.retired = append(c.leaving, c.retired...), nil
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

// adopt makes the sets in the kernel the desired ones, and returns them by class. A class of which only a part is written is unknown.
func (c *classSets) adopt() ([]classes.Class, error) {
	chunks, err := keep(c.sets)
	members := map[uint32][]uint32{}
	for key, bits := range chunks {
		c.chunks[key.Class] = append(c.chunks[key.Class], key.Chunk)
		members[key.Class] = append(members[key.Class], setsIn(key.Chunk, bits)...)
	}
	var list []classes.Class
	for class, numbers := range members {
		if slices.Contains(numbers, 0) { // partial
			continue
		}
		slices.Sort(numbers)
		list = append(list, classes.Class{ID: class, Sets: numbers})
	}
	slices.SortFunc(list, func(a, b classes.Class) int { return int(int64(a.ID) - int64(b.ID)) })
	return list, err
}
