package bpfmaps

import (
	"math/bits"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Memory is what maps take of the kernel's memory, in bytes.
type Memory struct {
	Empty uint64 // as soon as they are made
	Full  uint64 // with all their entries; policies in slots are not in it
}

// NeededMemory is what maps of these options take: all of them, and those that Open would make because they are not pinned. Maps that
// cannot be looked at count as missing. cpus is how many CPUs the kernel may have (ebpf.PossibleCPU). It opens and makes nothing.
func NeededMemory(o Options, cpus int) (all, missing Memory, err error) {
	spec, err := sized(o.MaxEntries)
	if err != nil {
		return all, missing, err
	}
	m := &Maps{dir: layoutDir(o.BPFFS, o.Instance), spec: spec}
	for _, name := range m.names() {
		need := mapMemory(spec.Maps[name], uint64(cpus))
		all.add(need)
		if _, err := os.Lstat(filepath.Join(m.dir, name)); err != nil {
			missing.add(need)
		}
	}
	return all, missing, nil
}

func (m *Memory) add(n Memory) {
	m.Empty += n.Empty
	m.Full += n.Full
}

// Memory of the kernel beside keys and values, in bytes: kernel/bpf/hashtab.c, lpm_trie.c, ringbuf.c.
const (
	hashElement = 48
	hashBucket  = 16
	trieNode    = 48
	pointer     = 8
)

// mapMemory follows what the kernel computes for map_mem_usage.
func mapMemory(spec *ebpf.MapSpec, cpus uint64) Memory {
	entries, key, value := uint64(spec.MaxEntries), round8(spec.KeySize), round8(spec.ValueSize)
	page := uint64(os.Getpagesize())
	switch spec.Type {
	case ebpf.Array:
		bytes := entries * value
		return Memory{bytes, bytes}
	case ebpf.PerCPUArray:
		bytes := entries * (pointer + value*cpus)
		return Memory{bytes, bytes}
	case ebpf.ArrayOfMaps:
		return Memory{entries * pointer, entries * pointer}
	case ebpf.RingBuf:
		bytes := entries + entries/page*2*pointer + 3*page
		return Memory{bytes, bytes}
	case ebpf.LPMTrie: // a branch needs a node of its own
		return Memory{0, 2 * entries * (trieNode + uint64(spec.KeySize) + value)}
	}
	element := hashElement + key + value
	if spec.Type == ebpf.PerCPUHash || spec.Type == ebpf.LRUCPUHash {
		element = hashElement + key + pointer + value*cpus
	}
	buckets := uint64(hashBucket) << bits.Len64(entries-1)
	full := buckets + entries*element
	if spec.Flags&unix.BPF_F_NO_PREALLOC != 0 {
		return Memory{buckets, full}
	}
	return Memory{full, full}
}

func round8(n uint32) uint64 { return (uint64(n) + 7) &^ 7 }
