package classes

import "hash/maphash"

// Authors of sets by number, besides those from 0 up.
const (
	NoAuthor = -1 // the set has several authors, or one that is not charged for it
	Leaving  = -2 // nothing will refer to the set
)

// Share is what the sets of one author make of some classes.
type Share struct {
	Alone int // combinations of these sets, without the empty one
	Added int // classes that would not be there without these sets
}

// Shares returns how many different classes there are without the leaving sets, and the shares of the authors from 0 up. Classes of both
// IP versions count apart.
func Shares(all []Class, author func(set uint32) int, authors int) (total int, shares []Share) {
	h := newSharing(authors)
	var parts []authored
	for _, class := range all {
		whole := h.digest(uint64(class.Family) << 32)
		parts = parts[:0]
		for _, set := range class.Sets {
			of := h.known(set, author)
			if of.author == Leaving {
				continue
			}
			if whole += of.digest; of.author >= 0 {
				parts = addPart(parts, of)
			}
		}
		if h.seen[whole] {
			continue
		}
		h.seen[whole] = true
		for _, p := range parts {
			h.alone[p.author][p.digest] = true
			h.rests[p.author] = append(h.rests[p.author], whole-p.digest)
		}
	}
	shares = make([]Share, authors)
	for by := range shares {
		shares[by] = Share{Alone: len(h.alone[by]), Added: h.added(by)}
	}
	return len(h.seen), shares
}

// authored is the sum of the digests of one author's sets, not 0.
type authored struct {
	author int
	digest uint64
}

func addPart(parts []authored, of authored) []authored {
	for i := range parts {
		if parts[i].author == of.author {
			parts[i].digest += of.digest
			return parts
		}
	}
	return append(parts, of)
}

// sharing has the digest of each class: the sum of those of its sets.
type sharing struct {
	seed  maphash.Seed // no author knows it: else sets could have equal sums
	sets  []authored   // by number, those that were asked for
	seen  map[uint64]bool
	alone []map[uint64]bool // by author
	rests [][]uint64        // by author: classes with sets of the author, without these
}

func newSharing(authors int) *sharing {
	h := &sharing{seed: maphash.MakeSeed(), seen: map[uint64]bool{}, alone: make([]map[uint64]bool, authors), rests: make([][]uint64, authors)}
	for by := range h.alone {
		h.alone[by] = map[uint64]bool{}
	}
	return h
}

// known returns the author of a set and its digest. A class may be in hundreds of sets, and its neighbours are in the same ones.
func (h *sharing) known(set uint32, author func(uint32) int) authored {
	if set >= mostKnown {
		return authored{author(set), h.digest(uint64(set))}
	}
	if missing := int(set) + 1 - len(h.sets); missing > 0 {
		h.sets = append(h.sets, make([]authored, missing)...)
	}
	of := &h.sets[set]
	if of.digest == 0 {
		*of = authored{author(set), h.digest(uint64(set))}
	}
	return *of
}

// mostKnown bounds the memory that a single high number takes.
const mostKnown = 1 << 20

func (h *sharing) digest(n uint64) uint64 { return maphash.Comparable(h.seed, n) }

// added is how many classes would be gone without an author's sets: those that become the same as another.
func (h *sharing) added(by int) int {
	merged := map[uint64]bool{}
	for _, rest := range h.rests[by] {
		if !h.seen[rest] {
			merged[rest] = true
		}
	}
	return len(h.rests[by]) - len(merged)
}
