package syncer

import (
	"context"
	"slices"
	"sync"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Memory is a Source for tests and demonstrations: it delivers what it is given, with the semantics of a datastore.
// What is put before Run is part of the snapshot; objects replaced or deleted before their delivery are not seen. All
// methods are safe for concurrent use.
type Memory struct {
	buffer *Buffer
	failed chan struct{} // closed by Fail

	mu       sync.Mutex
	err      error
	problems []validate.Problem
	kinds    []KindStatus
}

// NewMemory returns an empty datastore that is not in sync yet.
func NewMemory() *Memory {
	return &Memory{buffer: NewBuffer(), failed: make(chan struct{})}
}

// Put changes objects; an update with a nil value deletes.
func (m *Memory) Put(updates ...model.Update) { m.buffer.Put(updates) }

// Sync says that the first snapshot is complete. InSync is delivered after all that was put before.
func (m *Memory) Sync() { m.buffer.Put([]model.Update{model.InSync{}}) }

// Fail makes Run return err once what was put before has been delivered. Only the first call counts.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		close(m.failed)
	}
}

// Run implements Source.
func (m *Memory) Run(ctx context.Context, sink func([]model.Update)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.buffer.Ready():
			if us := m.buffer.Take(0); us != nil {
				sink(us)
			}
		case <-m.failed:
			if us := m.buffer.Take(0); us != nil {
				sink(us)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.err
		}
	}
}

// Report sets what Problems and Kinds return.
func (m *Memory) Report(problems []validate.Problem, kinds []KindStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problems, m.kinds = slices.Clone(problems), slices.Clone(kinds)
}

// Problems implements Source.
func (m *Memory) Problems() []validate.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.problems)
}

// Kinds implements Source.
func (m *Memory) Kinds() []KindStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.kinds)
}
