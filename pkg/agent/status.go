package agent

import "sync"

// statusBox has the status after the last pass. The loop writes it, anyone reads it.
type statusBox struct {
	inSync chan struct{} // closed when the first snapshot is enforced

	mu sync.Mutex // guards s
	s  Status
}

func newStatusBox() *statusBox { return &statusBox{inSync: make(chan struct{})} }

// Observe implements observer.
func (b *statusBox) Observe(o Outcome) {
	b.mu.Lock()
	b.s = o.Status
	b.mu.Unlock()
	if o.Apply != nil && o.Apply.First {
		close(b.inSync)
	}
}

func (b *statusBox) get() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}
