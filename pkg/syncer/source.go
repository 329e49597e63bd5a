// Package syncer brings the datastore to the calculation graph: sources that deliver model updates, and the buffer
// between a source and its consumer. It knows nothing about what becomes of the updates.
package syncer

import (
	"context"

	"github.com/margay-project/margay/pkg/model"
)

// Source delivers the state of a datastore and every later change of it.
type Source interface {
	// Run delivers the first full snapshot, one model.InSync, and then changes until ctx ends; then it returns nil.
	// It may be called once. What the datastore is asked for but cannot give right now (an outage, an object that
	// became invalid) stays as delivered last; Run returns an error only when it cannot go on at all, and nothing
	// that it delivered is taken back then.
	//
	// sink is called by one goroutine at a time and may block; the slice it is given is its own. Updates of one object
	// arrive in order. An update may repeat what is known, and a deletion may be of something never delivered.
	Run(ctx context.Context, sink func([]model.Update)) error
}
