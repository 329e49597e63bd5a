// Package syncer says what brings the datastore to the calculation graph: Source, which delivers model updates, and the
// buffer between a source and its consumer. It knows nothing about what becomes of the updates. The packages below it
// are sources, one for each kind of datastore; Memory is one for tests.
package syncer

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// Source delivers the state of a datastore and every later change of it.
type Source interface {
	// Run delivers the first full snapshot, one model.InSync, and then changes until ctx ends; then it returns nil.
	// It may be called once. Objects that the datastore cannot deliver right now (an outage, an object that
	// became invalid) stay as delivered last; Run returns an error only when it cannot go on at all, and nothing
	// that it delivered is taken back then.
	//
	// sink is called by one goroutine at a time and may block; the slices it is given are its own. Updates of one object
	// arrive in order. An update may repeat a delivered one, and a deletion may be of an object that was never
	// delivered.
	//
	// The stream is all that a source says: a relay that passes it on, also to another process, is as good a source.
	Run(ctx context.Context, sink func(Batch)) error
}

// Batch is a part of the stream of a source: a set of changes. Any of the lists may be empty.
type Batch struct {
	Updates []model.Update
	// Problems are the present problems of some objects. They replace the earlier ones of each object. A problem arrives
	// with the updates of the version that has it, or soon after.
	Problems []Findings
	// Kinds are the present states of some kinds. The first batch that has any has all of them. The state of a listed kind
	// arrives with its objects, or after them.
	Kinds []KindStatus
}

// Findings are the problems of one subject: an object, or a file.
type Findings struct {
	Subject  string             // names it in this stream; problems are shown in the order of subjects
	Problems []validate.Problem // none: it is well, or gone. Not to be changed by anyone.
}

// KindState is the state of one kind of object of a source.
type KindState uint8

const (
	// KindListing: the first full list has not been seen. If the kind is required, so is the barrier of InSync.
	KindListing KindState = iota + 1
	// KindSynced: known, and followed.
	KindSynced
	// KindAbsent: the datastore does not serve the kind (a CRD that is not installed): an empty list, asked for again
	// from time to time.
	KindAbsent
	// KindFailing: the last attempt to list or follow it failed; its known objects stay, and it is tried again.
	KindFailing
)

// String returns "listing", "synced", "absent" or "failing".
func (s KindState) String() string {
	switch s {
	case KindListing:
		return "listing"
	case KindSynced:
		return "synced"
	case KindAbsent:
		return "absent"
	case KindFailing:
		return "failing"
	}
	return "state " + strconv.Itoa(int(s))
}

// KindStatus is what a source says of one kind of object.
type KindStatus struct {
	Kind     string // as validate.Ref has it: "Pod", "FelixConfiguration.crd.projectcalico.org"
	State    KindState
	Required bool      // nothing is enforced before its first list
	Listed   bool      // a full list has been seen at some time, or the kind is absent
	Since    time.Time // of State
	Error    string    // one line: of the last failure while KindFailing or KindListing; why it is absent
	Objects  int       // known now
	Lists    uint64    // full lists seen
	Failures uint64    // of lists and watches
	Events   uint64    // changes seen by watching
	Revision int64     // of the datastore, as far as it is known; 0: it has none
	// Read is the API group and version that is read, if the kind was served in several when that was decided, and NotRead
	// describes the other: "projectcalico.org/v3, which lacks Tier secure",
	// "crd.projectcalico.org/v1, which has one more: shop/db". Empty otherwise.
	Read, NotRead string
}

// LogAttrs are a problem as sources log it.
func LogAttrs(p validate.Problem) []slog.Attr {
	return []slog.Attr{slog.String("object", p.Ref.String()), slog.String("severity", p.Severity.String()),
		slog.String("field", p.Field), slog.String("reason", p.Reason)}
}
