package syncer

import (
	"context"
	"slices"
	"sync"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Memory is a Source for tests and demonstrations: it delivers the objects put into it, with the semantics of a
// datastore. Objects put before Run are part of the snapshot; objects replaced or deleted before their delivery are not
// seen. All methods are safe for concurrent use.
type Memory struct {
	buffer   *Buffer
	failed   chan struct{} // closed by Fail
	reported chan struct{} // holds a token after Report

	mu     sync.Mutex
	err    error
	report Batch // that is still to be handed on
}

// NewMemory returns an empty datastore that is not in sync yet.
func NewMemory() *Memory {
	return &Memory{buffer: NewBuffer(), failed: make(chan struct{}), reported: make(chan struct{}, 1)}
}

// Put changes objects; an update with a nil value deletes.
func (m *Memory) Put(updates ...model.Update) { m.buffer.Put(updates) }

// Sync says that the first snapshot is complete. InSync is delivered after all that was put before.
func (m *Memory) Sync() { m.buffer.Put([]model.Update{model.InSync{}}) }

// Fail makes Run return err once all objects put before are delivered. Only the first call counts.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err == nil {
		m.err = err
		close(m.failed)
	}
}

// Run implements Source.
func (m *Memory) Run(ctx context.Context, sink func(Batch)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.buffer.Ready():
			m.hand(sink)
		case <-m.reported:
			m.hand(sink)
		case <-m.failed:
			m.hand(sink)
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.err
		}
	}
}

// hand gives the sink everything that waits.
func (m *Memory) hand(sink func(Batch)) {
	m.mu.Lock()
	b := m.report
	m.report = Batch{}
	m.mu.Unlock()
	if b.Updates = m.buffer.Drain(0); len(b.Updates)+len(b.Problems)+len(b.Kinds) > 0 {
		sink(b)
	}
}

// Report sets the present problems and the states of kinds.
func (m *Memory) Report(problems []validate.Problem, kinds []KindStatus) {
	m.mu.Lock()
	m.report.Problems = []Findings{{Problems: slices.Clone(problems)}}
	m.report.Kinds = slices.Clone(kinds)
	m.mu.Unlock()
	select {
	case m.reported <- struct{}{}:
	default: // a token is there already
	}
}
