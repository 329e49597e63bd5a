package bpfmaps

import (
	"sync/atomic"
	"unsafe"

	"github.com/margay-project/margay/bpf"
)

// direction is one from the pod's point of view.
type direction uint8

const (
	ingress direction = iota
	egress
)

func policy(p *bpf.Endpoint, of direction) *uint64 {
	if of == egress {
		return &p.Egress
	}
	return &p.Ingress
}

// Where the fields are whose order matters, in words of 32 bits. All others are aligned to such words too.
const (
	wordIfindex = int(unsafe.Offsetof(bpf.Endpoint{}.Ifindex) / 4)
	wordFlags   = int(unsafe.Offsetof(bpf.Endpoint{}.Flags) / 4)
	wordID      = int(unsafe.Offsetof(bpf.Endpoint{}.Id) / 4)
	wordPeer    = int(unsafe.Offsetof(bpf.Endpoint{}.PeerIfindex) / 4)
	endWord     = int(unsafe.Sizeof(bpf.Endpoint{}) / 4)
)

type words [endWord]uint32

func wordsOf(p *bpf.Endpoint) *words { return (*words)(unsafe.Pointer(p)) }

// store is one write a program may see without the next: a word, or a whole policy.
type store struct {
	word   int // unless policy
	value  uint64
	policy bool
	of     direction
}

// carryOut writes in the order of stores; atomics of Go are sequentially consistent, so they are seen in that order.
func carryOut(p *bpf.Endpoint, stores []store) {
	for _, s := range stores {
		if s.policy {
			atomic.StoreUint64(policy(p, s.of), s.value)
		} else {
			atomic.StoreUint32(&wordsOf(p)[s.word], uint32(s.value))
		}
	}
}

// creation fills a free place: all fields while the place belongs to no endpoint, then the policies, then the ifindex that makes
// it somebody's, and last the flags, which let packets pass.
func creation(place, ep bpf.Endpoint) []store {
	stores := []store{{word: wordFlags}}
	stores = append(stores, details(place, ep)...)
	return append(stores,
		store{policy: true, of: ingress, value: ep.Ingress},
		store{policy: true, of: egress, value: ep.Egress},
		store{word: wordIfindex, value: uint64(ep.Ifindex)},
		store{word: wordFlags, value: uint64(ep.Flags)})
}

// alteration writes what differs. A flag that goes, goes first; one that comes, comes last.
func alteration(old, ep bpf.Endpoint) []store {
	var stores []store
	if both := old.Flags & ep.Flags; both != old.Flags {
		stores = append(stores, store{word: wordFlags, value: uint64(both)})
	}
	stores = append(stores, details(old, ep)...)
	if old.Ingress != ep.Ingress {
		stores = append(stores, store{policy: true, of: ingress, value: ep.Ingress})
	}
	if old.Egress != ep.Egress {
		stores = append(stores, store{policy: true, of: egress, value: ep.Egress})
	}
	if old.Flags|ep.Flags != old.Flags {
		stores = append(stores, store{word: wordFlags, value: uint64(ep.Flags)})
	}
	return stores
}

// removal empties a place: the flags first, so that nothing passes, the ifindex last.
func removal(old bpf.Endpoint) []store {
	stores := []store{{word: wordFlags}, {policy: true, of: ingress}, {policy: true, of: egress}}
	stores = append(stores, details(old, bpf.Endpoint{})...)
	return append(stores, store{word: wordIfindex})
}

// details writes what differs from Id on. The peer's ifindex switches the shortcut on, so it is 0 while anything changes that the
// shortcut depends on: all but Id.
func details(old, ep bpf.Endpoint) []store {
	from, to := wordsOf(&old), wordsOf(&ep)
	var stores []store
	for i := wordID; i < endWord; i++ {
		if i != wordPeer && from[i] != to[i] {
			stores = append(stores, store{word: i, value: uint64(to[i])})
		}
	}
	idOnly := len(stores) == 1 && stores[0].word == wordID
	off := from[wordPeer] != 0 && (len(stores) > 0 && !idOnly || from[wordPeer] != to[wordPeer])
	if off {
		stores = append([]store{{word: wordPeer}}, stores...)
	}
	if to[wordPeer] != 0 && (off || from[wordPeer] == 0) {
		stores = append(stores, store{word: wordPeer, value: uint64(to[wordPeer])})
	}
	return stores
}

// load reads an entry word by word, the policies whole.
func load(p *bpf.Endpoint) bpf.Endpoint {
	var ep bpf.Endpoint
	from, to := wordsOf(p), wordsOf(&ep)
	for i := range to {
		to[i] = atomic.LoadUint32(&from[i])
	}
	ep.Ingress = atomic.LoadUint64(&p.Ingress)
	ep.Egress = atomic.LoadUint64(&p.Egress)
	return ep
}
