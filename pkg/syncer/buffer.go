package syncer

import (
	"container/list"
	"sync"

	"github.com/margay-project/margay/pkg/model"
)

// Buffer decouples a source from its consumer. It has one slot per object: a newer update replaces an older one that
// was not taken yet, in its place in the queue, and the deletion of an object the consumer never got vanishes with
// its slot. A slow consumer so sees fewer, newer updates, and memory is bounded by the size of the datastore.
//
// InSync is taken only after everything that was put before it.
//
// One goroutine may call Put while another calls Take; the consumer's loop selects on Ready.
type Buffer struct {
	ready chan struct{} // holds a token whenever the queue is not empty, unless the consumer has just received it

	mu      sync.Mutex
	queue   *list.List                  // of slot, oldest first
	pending map[model.Key]*list.Element // the slots by what they are about
	present map[model.Key]struct{}      // what the consumer has, by what it took
}

type slot struct {
	key    model.Key
	update model.Update
}

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer {
	return &Buffer{
		ready:   make(chan struct{}, 1),
		queue:   list.New(),
		pending: map[model.Key]*list.Element{},
		present: map[model.Key]struct{}{},
	}
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
	k, present := model.KeyOf(u)
	waiting := b.pending[k]
	_, known := b.present[k]
	switch {
	case !present && !known && waiting != nil:
		b.queue.Remove(waiting)
		delete(b.pending, k)
	case !present && !known:
	case waiting == nil:
		b.pending[k] = b.queue.PushBack(slot{k, u})
	case k == model.InSyncKey:
		b.queue.MoveToBack(waiting) // it must not overtake what came since the first one
	default:
		waiting.Value = slot{k, u}
	}
}

// Ready returns a channel that gives a value when there is something to take. After a value the consumer calls Take
// once; what Take leaves behind is announced again.
func (b *Buffer) Ready() <-chan struct{} { return b.ready }

// Take removes and returns the oldest updates, at most limit of them (all if limit is not positive). It never blocks;
// without updates it returns nil. The slice is the caller's.
func (b *Buffer) Take(limit int) []model.Update {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.queue.Len()
	if n == 0 {
		return nil
	}
	if limit > 0 {
		n = min(n, limit)
	}
	out := make([]model.Update, 0, n)
	for range n {
		s, _ := b.queue.Remove(b.queue.Front()).(slot)
		delete(b.pending, s.key)
		switch _, present := model.KeyOf(s.update); {
		case !present:
			delete(b.present, s.key)
		case s.key != model.InSyncKey:
			b.present[s.key] = struct{}{}
		}
		out = append(out, s.update)
	}
	b.signal()
	return out
}

// Len returns the number of updates that wait to be taken.
func (b *Buffer) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue.Len()
}

// signal makes Ready give a value if there is something to take.
func (b *Buffer) signal() {
	if b.queue.Len() == 0 {
		return
	}
	select {
	case b.ready <- struct{}{}:
	default: // a value is waiting already
	}
}
