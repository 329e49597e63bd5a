package bpfmaps

import "github.com/margay-project/margay/bpf"

// SetsOfClasses are the numbers of the sets that each class is in, ascending, as they are in the map now. A class in no set
// is missing.
func SetsOfClasses(t *Table[bpf.ClassChunk, bpf.SetBits]) (map[uint32][]uint32, error) {
	chunks, err := t.Load()
	if err != nil {
		return nil, err
	}
	most := map[uint32]uint32{} // the last chunk of each class
	for key := range chunks {
		most[key.Class] = max(most[key.Class], key.Chunk)
	}
	sets := make(map[uint32][]uint32, len(most))
	for class, last := range most {
		for chunk := uint32(0); chunk <= last; chunk++ {
			bits := chunks[bpf.ClassChunk{Class: class, Chunk: chunk}]
			for i := range uint32(len(bits.Bits) * 64) {
				if bits.Bits[i/64]>>(i%64)&1 != 0 {
					sets[class] = append(sets[class], chunk*uint32(len(bits.Bits)*64)+i)
				}
			}
		}
	}
	return sets, nil
}
