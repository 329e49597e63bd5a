package etcd

import (
	"context"
	"errors"
)

// connection is what the source asks of etcd. One that has failed is closed, and another is opened.
type connection interface {
	// list returns the first entries below root whose keys are not less than from, as of a revision; 0: the newest.
	list(ctx context.Context, from string, limit int64, revision int64, keysOnly bool) (page, error)
	// watch follows everything below root from a revision on, until ctx ends.
	watch(ctx context.Context, from int64) (stream, error)
	close()
}

// stream is a watch.
type stream interface {
	// next blocks until there is something to report. The first answer has no events and comes at once.
	next() (answer, error)
}

// position is where in a history of writes an answer is.
type position struct {
	cluster  uint64 // who wrote it
	revision int64
}

// entry is a key and its value.
type entry struct {
	key      string
	value    []byte
	created  int64 // revision of the key's first version since it was absent; 0: not known
	modified int64 // revision
	tooLarge bool  // there is a value that has not been read
}

// page is a part of a list.
type page struct {
	entries []entry
	more    bool // there are entries after these
	at      position
}

// event is a change of an entry.
type event struct {
	entry
	deleted bool
}

// answer is a part of a watch. It has all events of its revisions, in order; none, if no revision is complete yet.
type answer struct {
	at     position // of the server; events of revisions up to it may follow
	events []event
}

var (
	// errCompacted: the revision that was asked for has been compacted, so what happened since cannot be had.
	errCompacted = errors.New("what happened meanwhile has been compacted")
	// errHistory: the server has another history of writes than before, most likely because it was restored from a
	// snapshot. A revision of one says nothing about the other.
	errHistory = errors.New("the history of the datastore is not the one that was followed")
	// errTooLarge: an answer is larger than can be read at once.
	errTooLarge = errors.New("the answer is too large")
)
