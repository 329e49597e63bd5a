package syncer

import (
	"hash/maphash"
	"sync"

	"github.com/margay-project/margay/pkg/mapsize"
	"github.com/margay-project/margay/pkg/model"
)

// Buffer decouples a source from its consumer. It has one slot per object: a newer update replaces an older one that
// was not taken yet, in its place in the queue, and the deletion of an object the consumer never got vanishes with
// its slot. A slow consumer so sees fewer, newer updates, and memory is bounded by the size of the datastore.
//
// A deletion waits behind everything that was put before it: the consumer may take a part of the queue, and must not
// lose an object before it has the one that replaces it. A newer version that allows less still goes to the place of the
// older one. If all newer versions went to the end, an object that changes all the time could wait without end.
//
// InSync is taken only after everything that was put before it.
//
// After that, the objects of one namespace with very many addresses wait for one another, some of them in each Drain, while other objects pass
// them: each address is work for the consumer, and the author of such objects must not delay changes of others. Deletions in that namespace do
// not pass them. Nor do they pass a large network set of it that the consumer changes in parts, which is what Hold is for. No deletion passes
// cluster-wide sets.
//
// One goroutine may call Put while another calls Take; the consumer's loop selects on Ready.
type Buffer struct {
	ready chan struct{} // holds a token whenever the queue is not empty, unless the consumer has just received it
	seeds [2]maphash.Seed

	mu      sync.Mutex
	queue   []slot             // oldest first; some are empty
	head    int                // all slots before it are
	waiting int                // slots that are not
	pending map[keyHash]int    // their indexes, by key
	present map[keyHash]uint32 // objects that the consumer has, with how many addresses
	most    int                // present, see mapsize
	inSync  bool               // the consumer has InSync
	held    holds
}

// slot holds an update that waits. Without one it is empty.
type slot struct {
	key    keyHash
	update model.Update
}

// keyHash stands for a key. The buffer remembers each object that the consumer has, for as long as it has it. There may
// be very many, so the key is kept as a hash. Two keys with one keyHash would count as the same object. Among a million
// objects the probability of such a pair is 10^-27.
type keyHash [2]uint64

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer {
	return &Buffer{
		ready:   make(chan struct{}, 1),
		seeds:   [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		pending: map[keyHash]int{},
		present: map[keyHash]uint32{},
	}
}

func (b *Buffer) keyHash(k model.Key) keyHash {
	return keyHash{maphash.Comparable(b.seeds[0], k), maphash.Comparable(b.seeds[1], k)}
}

// Put adds updates. It never blocks, and keeps no reference to the slice.
func (b *Buffer) Put(updates []model.Update) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range updates {
		b.put(u)
	}
	b.signal()
}

func (b *Buffer) put(u model.Update) {
	key, present := model.KeyOf(u)
	k := b.keyHash(key)
	at, waiting := b.pending[k]
	_, known := b.present[k]
	switch {
	case !present && !known && waiting:
		b.empty(at)
		b.compact()
	case !present && !known:
	case waiting && key == model.InSyncKey:
		b.empty(at) // it must not overtake updates that came since the first one
		b.push(slot{k, u})
		b.compact()
	case waiting && !present && !b.inSyncWaits():
		b.empty(at)
		b.push(slot{k, u})
		b.compact()
	case waiting:
		b.queue[at].update = u
	default:
		b.push(slot{k, u})
	}
}

// inSyncWaits reports whether InSync waits. Updates that were put before it must not go behind it.
func (b *Buffer) inSyncWaits() bool {
	_, waits := b.pending[b.keyHash(model.InSyncKey)]
	return waits
}

func (b *Buffer) push(s slot) {
	b.pending[s.key] = len(b.queue)
	b.queue = append(b.queue, s)
	b.waiting++
}

// empty empties the slot at an index.
func (b *Buffer) empty(at int) {
	delete(b.pending, b.queue[at].key)
	b.queue[at] = slot{}
	b.waiting--
}

// compact drops empty slots when they are many, and the memory of a long queue with them.
func (b *Buffer) compact() {
	const few = 64
	if b.waiting == 0 && cap(b.queue) <= few {
		b.queue, b.head = b.queue[:0], 0
		return
	}
	if len(b.queue) <= 2*b.waiting+few {
		return
	}
	queue := make([]slot, 0, b.waiting)
	b.pending = make(map[keyHash]int, b.waiting)
	for _, s := range b.queue {
		if s.update != nil {
			b.pending[s.key] = len(queue)
			queue = append(queue, s)
		}
	}
	b.queue, b.head = queue, 0
}

// Ready returns a channel that gives a value when there is something to take. After a value the consumer calls Take
// once; what Take leaves behind is announced again.
func (b *Buffer) Ready() <-chan struct{} { return b.ready }

// Drain removes and returns the oldest updates, at most limit of them (all if limit is not positive). It never blocks;
// without updates it returns nil. The slice is the caller's. With a limit it leaves, of the objects of a namespace with addresses, those for which
// there is no room in MostAddresses.
func (b *Buffer) Drain(limit int) []model.Update {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.waiting
	if n == 0 {
		return nil
	}
	if limit > 0 {
		n = min(n, limit)
	}
	out := b.next(make([]model.Update, 0, n), n, limit > 0 && b.inSync)
	for b.head < len(b.queue) && b.queue[b.head].update == nil {
		b.head++
	}
	b.compact()
	mapsize.Shrink(&b.present, &b.most)
	if len(out) > 0 { // what is held is announced when that ends
		b.signal()
	}
	return out
}

// Hold says in which namespaces the consumer is changing network sets or inherited labels in parts. Until it says that it has ended there, Drain
// leaves the network sets, EndpointSlices, policies and known profiles of these namespaces, and deletions there; if one of them is "", all deletions. Of a namespace with false it
// leaves new versions of policies, and deletions behind them, but for those of pods, whose addresses may be others' by now.
func (b *Buffer) Hold(namespaces map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.held
	b.held = namespaces
	for namespace, sets := range was {
		if still, is := namespaces[namespace]; !is || sets && !still {
			b.signal()
			return
		}
	}
}

// leftForOne is how many updates next leaves at most for each that it may return. A tenant may have tens of thousands of objects wait, which
// must not hide those of others behind them. To look at a hundred thousand takes 6 ms.
const leftForOne = 10

// next appends up to n updates to out; if bounded, those that have room. Once it has left one, it leaves deletions of the same namespace, too,
// and looks no farther than leftForOne times n that are left, or InSync.
func (b *Buffer) next(out []model.Update, n int, bounded bool) []model.Update {
	var addresses room
	var behind scopes // of those that are left
	left, held := 0, b.held
	for at := b.head; len(out) < n && left < leftForOne*n && at < len(b.queue); at++ {
		s := b.queue[at]
		if s.update == nil {
			continue
		}
		key, present := model.KeyOf(s.update)
		if left > 0 && key == model.InSyncKey {
			break
		}
		before, known := b.present[s.key]
		scope := scopeOf(s.update)
		if !present && behind.concern(s.update, scope) || held.keep(s.update, present, known) || bounded && !addresses.has(s.update, before) {
			left, behind = left+1, behind.with(scope, !held.isPolicy(s.update, present))
			continue
		}
		if bounded {
			held = held.begin(s.update, before)
		}
		b.empty(at)
		switch {
		case !present:
			delete(b.present, s.key)
		case key == model.InSyncKey:
			b.inSync = true
		default:
			_, b.present[s.key] = addressesOf(s.update)
		}
		out = append(out, s.update)
	}
	return out
}

// Len returns the number of updates that wait to be taken.
func (b *Buffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// signal makes Ready give a value if there is something to take.
func (b *Buffer) signal() {
	if b.waiting == 0 {
		return
	}
	select {
	case b.ready <- struct{}{}:
	default: // a value is waiting already
	}
}
