package dataplane

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
)

// classes are the sets of each class in the kernel, which the interpreter reads. A class that was dropped keeps them, and
// its number, until no packet can still be at work with it: it looked the class up before its address changed.
type classes struct {
	sets    *bpfmaps.Table[bpf.ClassChunk, bpf.SetBits]
	slots   slots           // knows when packets have left
	retired map[uint32]bool // dropped, and still in sets
	quiet   <-chan error    // delivers when retired can be removed; nil: nothing to wait for
}

// add writes the sets of new classes. A class that cannot be written has no address; see incomplete.
func (c *classes) add(list []compile.Class) error {
	if len(list) > 0 {
		if err := c.forget(true); err != nil {
			return err
		}
	}
	for _, class := range list {
		for chunk, bits := range chunksOf(class.Sets) {
			c.sets.Set(bpf.ClassChunk{Class: class.ID, Chunk: chunk}, bits)
		}
	}
	_ = c.sets.Sync() // writeLeft tells of it
	return nil
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
func (c *classes) incomplete(class uint32) bool {
	if c.sets.Pending() == 0 {
		return false
	}
	return slices.ContainsFunc(c.sets.Unwritten(), func(key bpf.ClassChunk) bool { return key.Class == class })
}

// retire drops classes.
func (c *classes) retire(list []uint32) {
	for _, class := range list {
		c.retired[class] = true
	}
	if len(list) > 0 {
		c.quiet = c.slots.Quiesce()
	}
}

// forget removes the sets of retired classes if packets have left. With wait it waits for that: no class may be made
// before, since it might get the number of a retired one.
func (c *classes) forget(wait bool) error {
	if c.quiet == nil {
		return nil
	}
	if !wait {
		select {
		case err := <-c.quiet:
			return c.forgotten(err)
		default:
			return nil
		}
	}
	return c.forgotten(<-c.quiet)
}

func (c *classes) forgotten(err error) error {
	if c.quiet = nil; err != nil {
		c.quiet = c.slots.Quiesce() // the next attempt waits again
		return fmt.Errorf("wait for packets to leave: %w", err)
	}
	var keys []bpf.ClassChunk
	for key := range c.sets.All() {
		if c.retired[key.Class] {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		c.sets.Delete(key)
	}
	clear(c.retired)
	_ = c.sets.Sync() // what is left keeps its number (busyClasses), and writeLeft tells of it
	return nil
}

// wait waits until nothing uses the maps for retired classes any more.
func (c *classes) wait() {
	if c.quiet != nil {
		<-c.quiet
		c.quiet = nil
	}
}

// adopt makes what is in the kernel the sets that are wanted, and returns them by class.
func (c *classes) adopt() ([]compile.Class, error) {
	chunks, err := keep(c.sets)
	members := map[uint32][]uint32{}
	for key, bits := range chunks {
		members[key.Class] = append(members[key.Class], setsIn(key.Chunk, bits)...)
	}
	var list []compile.Class
	for class, numbers := range members {
		slices.Sort(numbers)
		list = append(list, compile.Class{ID: class, Sets: numbers})
	}
	slices.SortFunc(list, func(a, b compile.Class) int { return int(int64(a.ID) - int64(b.ID)) })
	return list, err
}
